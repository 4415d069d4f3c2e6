"""The URL that platforms call: who may, what it does, and what it leaves alone."""

from __future__ import annotations

import datetime as dt
import hmac
import logging
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.urls import include, path, reverse

from pgjobs import job, store, views
from pgjobs.api.registry import registry
from pgjobs.models import Job, Schedule, Tick
from tests.rows import claim, nothing_changes

urlpatterns = [path("jobs/", include("pgjobs.urls"))]
SECRET = "correct-horse-battery-staple"  # noqa: S105
RIGHT = f"Bearer {SECRET}"

pytestmark = [pytest.mark.django_db, pytest.mark.urls(__name__)]


@pytest.fixture(autouse=True)
def _secret() -> Iterator[None]:
    with override_settings(PGJOBS={"TRIGGER_SECRET": SECRET}):
        yield


@pytest.fixture
def nightly() -> Schedule:
    return Schedule.objects.create(name="nightly", kind="add", payload={"a": 1}, cron="0 3 * * *", timezone="UTC")


def call(
    method: str = "POST", name: str = "nightly", authorization: str = RIGHT, query: str = "", **headers: str
) -> Any:
    client = Client(enforce_csrf_checks=True)
    if authorization:
        headers["Authorization"] = authorization
    return client.generic(method, f"/jobs/trigger/{quote(name, safe='')}/{query}", headers=headers)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_job_and_the_schedule_is_left_alone(nightly: Schedule, method: str) -> None:
    """Some platforms' cron can only GET. Without a cookie and without a token against forgery."""
    before = Schedule.objects.values().get()
    response = call(method)
    job = Job.objects.get()
    assert (response.status_code, response.json()) == (202, {"schedule": "nightly", "job": job.pk, "created": True})
    assert response["Cache-Control"] == "no-store"
    assert response["Content-Type"] == "application/json"
    assert (job.kind, job.payload, job.queue, job.priority, job.max_attempts) == ("add", {"a": 1}, "sums", 7, 3)
    assert job.schedule_id == nightly.pk
    assert job.scheduled_for is not None
    assert Schedule.objects.values().get() == before
    assert not Tick.objects.exists()
    assert call(method).json()["job"] != job.pk  # each call is a job


def test_the_queue_of_the_schedule(nightly: Schedule) -> None:
    Schedule.objects.update(queue="slow")
    assert call().status_code == 202
    assert Job.objects.get().queue == "slow"


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {SECRET}x", f"Bearer {SECRET[:-1]}", f"Basic {SECRET}", SECRET,
     f"Token {SECRET}", "Bearer ünï", "Bearer \udcff", f"Bearer {SECRET} {SECRET}", f"Bearer{SECRET}"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", ["nightly", "nobody"])
def test_without_the_secret_nothing_is_done_or_told(
    nightly: Schedule, name: str, method: str, authorization: str
) -> None:
    with nothing_changes():
        response = call(method, name, authorization)
    assert response.status_code == 401
    assert response["WWW-Authenticate"] == "Bearer"
    assert response["Cache-Control"] == "no-store"
    assert response.json() == {"error": "a bearer secret is needed"}


def test_the_database_is_not_asked_before_the_secret(nightly: Schedule, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert call(authorization="Bearer wrong").status_code == 401
        assert call("HEAD").status_code == 405


@pytest.mark.parametrize("authorization", [f"bearer {SECRET}", f"BEARER  {SECRET} "])
def test_how_the_header_is_read(nightly: Schedule, authorization: str) -> None:
    assert call(authorization=authorization).status_code == 202


def test_the_secret_is_compared_in_constant_time(nightly: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    compared = []
    genuine = hmac.compare_digest

    def compare(given: Any, right: Any) -> bool:
        compared.append((given, right))
        return genuine(given, right)

    monkeypatch.setattr(views.hmac, "compare_digest", compare)
    call(authorization="Bearer wrong")
    assert compared == [(b"wrong", SECRET.encode())]


@pytest.mark.parametrize("secret", [{}, {"TRIGGER_SECRET": None}])
def test_unset_means_that_nobody_may(
    nightly: Schedule, secret: dict[str, None], caplog: pytest.LogCaptureFixture
) -> None:
    with override_settings(PGJOBS=secret), nothing_changes(), caplog.at_level(logging.WARNING, "pgjobs"):
        for authorization in (RIGHT, "", "Bearer ", "Bearer None"):
            assert call(authorization=authorization).status_code == 401
    assert "TRIGGER_SECRET" in caplog.text


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE"])
def test_other_methods_do_nothing(nightly: Schedule, method: str) -> None:
    with nothing_changes():
        response = call(method)
    assert response.status_code == 405
    assert response["Allow"] == "GET, POST"


def test_unknown_and_retired_ones(nightly: Schedule) -> None:
    with nothing_changes():
        assert call(name="nobody").status_code == 404
        assert call(name="night\0ly").status_code == 404
        Schedule.objects.update(retired_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
        assert call().status_code == 404


def test_a_paused_one_runs(nightly: Schedule) -> None:
    """Whose only clock is the platform's: ``enabled`` is about our own."""
    Schedule.objects.update(enabled=False)
    assert call().status_code == 202


@pytest.mark.parametrize("name", ["a/b c", "reports: ünï & co?", "x" * 255])
def test_any_name(name: str) -> None:
    Schedule.objects.create(name=name, kind="add", payload={"a": 1}, cron="0 3 * * *", timezone="UTC")
    assert Client().post(reverse("pgjobs:trigger", args=[name]), headers={"Authorization": RIGHT}).status_code == 202
    assert Job.objects.count() == 1


@pytest.mark.parametrize("how", ["query", "header"])
def test_a_key_counts_once_within_a_tick(nightly: Schedule, how: str) -> None:
    asked: dict[str, Any] = {"query": "?key=k-1"} if how == "query" else {"Idempotency-Key": "k-1"}
    first = call("GET", **asked)
    assert first.status_code == 202
    again = call("POST", **asked)
    assert (again.status_code, again.json()) == (200, {**first.json(), "created": False})
    [held] = claim()
    assert store.finish(connection, held.id, held.lease, None)
    assert call(**asked).json() == {**first.json(), "created": False}  # it has ended meanwhile
    assert call("GET", query="?key=k-2").status_code == 202
    assert call("GET").status_code == 202
    assert Job.objects.count() == 3


@pytest.mark.parametrize(
    "rule",
    [{"cron": "* * * * *", "timezone": "Asia/Kathmandu"}, {"every": dt.timedelta(minutes=1), "timezone": "UTC"}],
)
def test_the_next_tick_takes_the_key_again(rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    Schedule.objects.create(name="nightly", kind="add", payload={"a": 1}, **rule)
    now = dt.datetime(2026, 12, 1, 12, 0, 59, 999999, tzinfo=dt.UTC)
    monkeypatch.setattr("pgjobs.store.database_time", lambda connection: now)
    assert call(query="?key=k").json()["created"]
    assert not call(query="?key=k").json()["created"]
    now += dt.timedelta(microseconds=1)
    assert call(query="?key=k").json()["created"]


@pytest.mark.parametrize("key", ["x" * 256, "ü" * 128, "%00", ""])
def test_keys_that_cannot_be(nightly: Schedule, key: str) -> None:
    with nothing_changes():
        assert call(query=f"?key={quote(key, safe='%')}").status_code == 400


def test_an_empty_header_is_a_forgotten_variable_not_the_wish_for_many_jobs(nightly: Schedule) -> None:
    with nothing_changes():
        assert call(**{"Idempotency-Key": ""}).status_code == 400


def test_a_payload_that_does_not_fit(nightly: Schedule, caplog: pytest.LogCaptureFixture) -> None:
    Schedule.objects.update(payload={"b": 1})
    with nothing_changes():
        response = call()
    assert response.status_code == 409
    assert "needs the argument 'a'" in response.json()["error"]
    assert "nightly" in caplog.text


def test_a_kind_of_another_service(nightly: Schedule) -> None:
    Schedule.objects.update(kind="elsewhere.report", payload={"x": 1})
    assert call().status_code == 202
    assert Job.objects.get().kind == "elsewhere.report"


@pytest.fixture
def made() -> Iterator[list[dt.datetime]]:
    """A handler whose schedule's payload is made by code; the nominal times that it was made for."""
    times: list[dt.datetime] = []

    def make(scheduled_for: dt.datetime) -> dict[str, str]:
        times.append(scheduled_for)
        if len(times) > 1:
            raise LookupError("no data")
        return {"day": scheduled_for.date().isoformat()}

    def report(day: str) -> None: ...

    handler = job(cron="0 3 * * *", timezone="UTC", schedule_payload=make, schedule_name="made")(report).handler
    yield times
    registry.remove(handler)


def test_a_payload_that_code_makes(made: list[dt.datetime], caplog: pytest.LogCaptureFixture) -> None:
    """It is made for the nominal time that the job has."""
    Schedule.objects.create(name="made", kind="report", payload_from="tests.make", cron="0 3 * * *", timezone="UTC")
    assert call(name="made").status_code == 202
    stored = Job.objects.get()
    assert made == [stored.scheduled_for]
    assert stored.payload == {"day": made[0].date().isoformat()}
    with nothing_changes():
        response = call(name="made")
    assert response.status_code == 409
    assert "tests.make, which makes the payload, raised LookupError: no data" in response.json()["error"]
    Schedule.objects.update(name="unmade")
    assert "the code here does not have tests.make" in call(name="unmade").json()["error"]
