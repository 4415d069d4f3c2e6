"""cancel: pending → cancelled; a running job is asked to stop. And the holder's own cancel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from pgjobs import store
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.integration.store.test_fence import heartbeat
from tests.rows import NO_LEASE, changes, claim, columns, database_now, held, history, nothing_changes

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("by", "text"), [("", "cancelled"), ("ann", "cancelled by ann")])
@pytest.mark.parametrize("trait", [None, "scheduled", "retrying", "snoozed", "expired"])
def test_a_pending_job_is_cancelled(trait: str | None, by: str, text: str) -> None:
    job = JobFactory(**{trait: True} if trait else {}, dedupe_key="k")
    with changes(job.pk) as changed:
        assert store.cancel(connection, [job.pk], by=by) == {job.pk: "cancelled"}
    assert changed.pop("finished_at") is not None
    was = {"error_class": None} if trait == "retrying" else {}
    assert changed == {"status": "cancelled", "last_error": text} | was
    assert claim() == []


def test_a_running_job_is_asked_and_the_heartbeat_delivers_it() -> None:
    """F24: no LISTEN is needed."""
    job = held()
    before = database_now()
    assert heartbeat(job.id, job.lease) == "held"
    with changes(job.id) as changed:
        assert store.cancel(connection, [job.id], by="ann") == {job.id: "requested"}
    assert changed.keys() == {"cancel_requested_at"}
    assert before <= changed["cancel_requested_at"] <= database_now()
    assert heartbeat(job.id, job.lease) == "cancel"


def test_a_second_request_keeps_the_time_of_the_first() -> None:
    job = JobFactory(cancel_requested=True)
    with changes(job.pk) as changed:
        assert store.cancel(connection, [job.pk]) == {job.pk: "requested"}
    assert changed == {}


@pytest.mark.parametrize("trait", ["done", "failed", "dead", "cancelled"])
def test_an_ended_job_stays_as_it_is(trait: str) -> None:
    job = JobFactory(**{trait: True})
    with nothing_changes():
        assert store.cancel(connection, [job.pk]) == {job.pk: "not_live"}


def test_an_answer_for_each_once(hold_row: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.store.operating.PATIENCE", 0)
    pending, running, done, busy = JobFactory(), JobFactory(reserved=True), JobFactory(done=True), JobFactory()
    hold_row(busy.pk, "FOR SHARE")
    ids = [10**12, busy.pk, done.pk, running.pk, pending.pk, pending.pk]
    assert store.cancel(connection, ids) == {
        pending.pk: "cancelled", running.pk: "requested", done.pk: "not_live", busy.pk: "busy", 10**12: "missing",
    }  # fmt: skip
    assert store.cancel(connection, []) == {}


def test_busy_rows_are_tried_again(hold_row: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    job = JobFactory()
    let_go = hold_row(job.pk)
    monkeypatch.setattr("pgjobs.store.operating.time.sleep", lambda _: let_go())
    assert store.cancel(connection, [job.pk]) == {job.pk: "cancelled"}


def test_nobody_is_told(heard: Callable[[], list[str]]) -> None:
    job = held()
    heard()
    store.cancel(connection, [job.id])
    assert heard() == []


def test_more_than_a_batch(monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Callable[[int], object]) -> None:
    monkeypatch.setattr("pgjobs.store.operating.BATCH", 10)
    ids = [job.pk for job in JobFactory.create_batch(25)]
    with django_assert_num_queries(3):  # type: ignore[attr-defined]
        assert store.cancel(connection, ids) == dict.fromkeys(ids, "cancelled")


def test_a_handler_cancels_its_own_job() -> None:
    job = held(lost=1, error_class="x.Y")
    with changes(job.id) as changed:
        assert store.cancel_held(connection, job.id, job.lease, reason="enough", log="said") == "cancelled"
    finished_at = changed.pop("finished_at")
    assert changed == NO_LEASE | {"status": "cancelled", "last_error": "enough", "error_class": None, "lost": 0}
    [row] = history(job.id)
    assert (row["outcome"], row["error"], row["finished_at"], row["log"]) == (
        "cancelled",
        "enough",
        finished_at,
        "said",
    )
    assert columns(job.id)["cancel_requested_at"] is None
