"""The page of one job."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from pgjobs.models import Attempt, Job
from tests.factories import TRAITS, AttemptFactory, JobFactory, PauseFactory, RerunFactory, WorkerFactory
from tests.rows import nothing_changes

from .conftest import LIST, page, told

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("trait", ["", *TRAITS])
@pytest.mark.parametrize("kind", ["scripted", "gone_with_its_handler"])
def test_every_state_has_a_page(ann: Client, trait: str, kind: str) -> None:
    """F126, F144: the page is made of data; a handler is not needed."""
    job = JobFactory(kind=kind, payload={"order_id": 17}, **({trait: True} if trait else {}))
    with nothing_changes():
        response = ann.get(page(job))
    assert response.status_code == 200
    text = response.content.decode()
    assert f"{kind} #{job.pk}" in text
    assert "&quot;order_id&quot;: 17" in text
    assert ("no handler of the kind" in text) == (kind != "scripted")


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        ("ValueError: boom", "boom"),
        ("boom", "boom"),
        ("KeyError: 'a': b", "KeyError: &#x27;a&#x27;: b"),
        ("ValueError:", "ValueError:"),
        ("ValueError", "ValueError"),
    ],
)
def test_the_class_of_an_error_is_said_once(ann: Client, error: str, shown: str) -> None:
    """Workers store the text with its class, ``ValueError: boom``; what wrote the row in SQL may not."""
    job = JobFactory(dead=True, error_class="builtins.ValueError", last_error=error)
    AttemptFactory(job=job, error=error)
    text = ann.get(page(job)).content.decode()
    assert text.count(f"<b>builtins.ValueError</b>: {shown}</") >= 2, "at the top, and at the attempt"
    assert error == shown or "</b>: ValueError: boom<" not in text
    assert f"<b>ValueError</b> {shown}</span>" in ann.get(LIST).content.decode()


def test_everything_of_a_dead_letter(ann: Client) -> None:
    parent = JobFactory(done=True)
    job = JobFactory(
        dead=True,
        attempts=2,
        parent_id=parent.pk,
        dedupe_key="receipt-42",
        meta={"request": "r-1"},
        schedule_id=7,
        snoozes=2,
    )
    AttemptFactory(job=job, attempt=2, outcome="timeout", error="first\nsecond", log="a line of the log", worker="w-9")
    text = ann.get(page(job)).content.decode()
    for said in (
        "no attempt is left, all 2 were used",
        "retry it once the cause is mended",
        "builtins.ValueError",
        "Traceback (most recent call last):",
        "Ran out of time",
        "a line of the log",
        "on w-9",
        "receipt-42",
        "&quot;request&quot;: &quot;r-1&quot;",
        page(parent),
        "First started",
        "It is kept until",
    ):
        assert said in text, said


def test_result_and_progress(ann: Client) -> None:
    job = JobFactory(reserved=True, progress={"done": 30, "total": 120, "text": "line <30>"})
    text = ann.get(page(job)).content.decode()
    assert '<progress max="100" value="25">' in text
    assert "line &lt;30&gt;" in text
    for odd in ([], "x", {"done": "1", "total": 0}, {"done": 5, "total": 0}, {"text": {"a": 1}}):
        Job.objects.filter(pk=job.pk).update(progress=odd)
        assert ann.get(page(job)).status_code == 200
    done = JobFactory(done=True, result={"rows": [1, None, True, 2.5]})
    assert "&quot;rows&quot;" in ann.get(page(done)).content.decode()


def test_only_the_latest_attempts_are_shown(ann: Client) -> None:
    job = JobFactory(retrying=True, history=False)
    for n in range(30):
        AttemptFactory(job=job, attempt=n, error=f"error-{n}.")
    text = ann.get(page(job)).content.decode()
    assert "error-29." in text
    assert "error-4." not in text
    assert "Earlier ones are not shown" in text


def test_a_vanished_job_leads_to_the_list(ann: Client) -> None:
    """F144"""
    for address in (
        page(4711),
        f"{LIST}nonsense/change/",
        f"{LIST}99999999999999999999999/change/",
        f"{LIST}_5F/change/",
    ):
        response = ann.get(address)
        assert (response.status_code, response.url) == (302, LIST)
    assert "is not there any more" in told(response)


def test_it_takes_few_queries(ann: Client, django_assert_max_num_queries: Any) -> None:
    job = JobFactory(dead=True, attempts=5)
    ann.get(page(job))
    with django_assert_max_num_queries(7):
        ann.get(page(job))


def test_everything_is_escaped(ann: Client) -> None:
    evil = "<script>alert(1)</script>\u202eevil\u2066\x1b[31m"
    job = JobFactory(
        dead=True,
        kind=evil,
        queue=evil,
        payload={evil: [evil]},
        meta={evil: evil},
        last_error=evil,
        error_class=evil,
        dedupe_key=evil,
        worker=evil,
    )
    Attempt.objects.filter(job_id=job.pk).update(
        error=evil, error_class=evil, traceback=evil, log=evil, worker=evil, outcome=evil
    )
    PauseFactory(name=evil, by=evil, reason=evil)
    for address in (page(job), LIST, LIST + "?status=dead", f"{LIST}{job.pk}/history/"):
        text = ann.get(address).content.decode()
        assert "<script>alert" not in text
        if "history" not in address:
            assert not {"\u202e", "\u2066", "\x1b"} & set(text), address
    text = ann.get(page(job)).content.decode()
    assert "\\u202eevil\\u2066\\u001b[31m" in text
    assert "\\\\u202e" not in text  # escaped once, in documents too


def test_documents_that_python_cannot_read_have_a_page(ann: Client) -> None:
    deep = '{"password": "hunter2", "a": ' + "[" * 5000 + "]" * 5000 + "}"
    job = JobFactory(dead=True, last_error="hunter2 was refused")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET payload = %s::jsonb WHERE id = %s", [deep, job.pk])
    text = ann.get(page(job)).content.decode()
    assert "nested too deeply" in text or "…" in text  # newer Pythons read deeper; then the depths are left out
    assert "hunter2" not in text
    assert "hunter2" not in ann.get(LIST).content.decode()


def test_large_documents_are_cut(ann: Client) -> None:
    job = JobFactory(payload={"text": "x" * 900_000})
    response = ann.get(page(job))
    assert response.status_code == 200
    assert len(response.content) < 200_000
    Job.objects.filter(pk=job.pk).update(payload=json.loads("[" * 0 + '{"a": ' + "[" * 300 + "]" * 300 + "}"))
    assert ann.get(page(job)).status_code == 200


def headline(client: Client, job: Any) -> str:
    story = client.get(page(job)).context["shown"].story
    return " ".join([story.headline, story.next, *story.notes])


class TestStory:
    """What is going on and what happens next, in words."""

    def test_waiting_for_the_next_attempt(self, ann: Client) -> None:
        WorkerFactory()
        due = timezone.now() + dt.timedelta(minutes=4, seconds=2)
        job = JobFactory(retrying=True, attempts=3, run_after=due)
        said = headline(ann, job)
        assert said.startswith("Failed 3 of 10 attempts. The next one is due in 4 minutes, at ")
        assert f"{due:%H:%M:%S} UTC, unless somebody cancels it." in said

    def test_waiting_for_its_time(self, ann: Client) -> None:
        WorkerFactory()
        job = JobFactory(run_after=timezone.now() + dt.timedelta(days=2, hours=3, seconds=5))
        assert headline(ann, job).startswith("Waiting for its time. The first run is due in 2 days 3 hours, at ")

    def test_snoozed(self, ann: Client) -> None:
        assert "Snoozed by its handler." in headline(ann, JobFactory(snoozed=True))

    def test_due_with_nobody_to_take_it(self, ann: Client) -> None:
        job = JobFactory(queue="mail", kind="scripted")
        assert "No worker is alive" in headline(ann, job)
        WorkerFactory(queues=["other"])
        WorkerFactory(exclude_queues=["mail"])
        WorkerFactory(stopping=True)
        WorkerFactory(beat_at=timezone.now() - dt.timedelta(minutes=5))
        assert "No live worker serves queue “mail”." in headline(ann, job)
        WorkerFactory(queues=["mail"], kinds=["add"])
        assert "No live worker of this queue knows the kind “scripted”" in headline(ann, job)
        WorkerFactory(kinds=["scripted"])
        assert headline(ann, job).startswith("Waiting in queue “mail” for a worker. It has been due for")

    def test_paused(self, ann: Client) -> None:
        WorkerFactory()
        job = JobFactory(queue="mail")
        PauseFactory(name="mail", by="Ann", reason="relay moves.", until=timezone.now() + dt.timedelta(hours=20))
        PauseFactory(name="other")
        said = headline(ann, job)
        assert "Waiting in queue “mail” for a worker. Queue “mail” is paused by Ann until " in said
        assert "UTC: relay moves. It has been due for" in said
        PauseFactory(scope="kind", name="scripted", until=timezone.now() - dt.timedelta(hours=1))
        assert "are paused" not in headline(ann, job)  # that one is over

    def test_expiry(self, ann: Client) -> None:
        WorkerFactory()
        assert "It has expired" in headline(ann, JobFactory(expired=True))
        later = JobFactory(expires_at=timezone.now() + dt.timedelta(hours=5))
        assert "if no worker has taken it by then, it is cancelled" in headline(ann, later)

    def test_running(self, ann: Client) -> None:
        job = JobFactory(reserved=True, worker="w-7")
        said = headline(ann, job)
        assert said.startswith("Running on worker w-7 for 2 minutes")
        assert "attempt 1 of 10. Its lease holds until " in said
        assert "Its time limit is reached in " in said
        assert "Should it fail, it is tried again." in said
        last = JobFactory(reserved=True, attempts=10, timeout=None)
        assert "This is its last attempt" in headline(ann, last)
        assert "time limit" not in headline(ann, last)
        over = JobFactory(reserved=True, timeout=dt.timedelta(seconds=10))
        assert "past its time limit" in headline(ann, over)

    def test_stopping(self, ann: Client) -> None:
        said = headline(ann, JobFactory(cancel_requested=True))
        assert (
            "Somebody asked to cancel it 10 seconds ago. The worker hears of it with its next heartbeat (every 5 s)."
            in said
        )

    def test_a_silent_worker(self, ann: Client) -> None:
        said = headline(ann, JobFactory(lapsed=True))
        assert "has gone silent: its lease lapsed 30 seconds ago." in said
        assert "returns the job to its queue" in said
        assert "But no worker is alive." in said
        assert "No attempt is left" in headline(ann, JobFactory(lapsed=True, attempts=10))
        assert "ends the job as cancelled" in headline(ann, JobFactory(lapsed=True, cancel_requested_at=timezone.now()))

    def test_the_end(self, ann: Client) -> None:
        assert headline(ann, JobFactory(done=True)).startswith(
            "Done 1 minute ago, on attempt 1, after 1 min. Nothing more happens."
        )
        assert "Failed for good 1 minute ago" in headline(ann, JobFactory(failed=True))
        assert "Dead for 1 minute: no attempt is left, all 2 were used." in headline(ann, JobFactory(dead=True))
        buried = JobFactory(dead=True, attempts=1, max_attempts=10, last_error="boom\nburied by ann")
        assert "moved to the dead letters (buried by ann) after 1 of 10 attempts" in headline(ann, buried)
        assert "Cancelled 1 minute ago by somebody." in headline(ann, JobFactory(cancelled=True))
        assert "Expired 1 minute ago" in headline(ann, JobFactory(lapsed_unused=True))

    def test_what_else_one_should_know(self, ann: Client) -> None:
        job = JobFactory(reserved=True, dedupe_key="k")
        RerunFactory(dedupe_key="k")
        assert "once it ends, a new job with the latest payload takes its place" in headline(ann, job)
        assert "so it runs alone until it has ended" in headline(ann, JobFactory(suspect=True))
        assert "lost 3 times in a row" in headline(ann, JobFactory(lost=3))

    def test_times_are_those_of_the_reader(self, ann: Client, settings: Any) -> None:
        settings.TIME_ZONE = "Asia/Kathmandu"
        job = JobFactory(retrying=True)
        assert "+0545" in headline(ann, job)

    def test_without_time_zones(self, ann: Client, settings: Any) -> None:
        settings.USE_TZ = False
        job = Job.objects.create(kind="scripted", run_after=dt.datetime.now() + dt.timedelta(hours=1))  # noqa: DTZ005
        job.refresh_from_db()
        assert "Waiting for its time. The first run is due in" in headline(ann, job)
        assert ann.get(LIST).status_code == 200
