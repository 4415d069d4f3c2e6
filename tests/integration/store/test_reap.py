"""reap: reservations whose lease lapsed → pending, dead or cancelled."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.db import connection

from pgjobs import store
from pgjobs.models import Job, Worker
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import NO_LEASE, changes, claim, columns, database_now, held, history, lapse, nothing_changes

pytestmark = pytest.mark.django_db


def test_a_lapsed_job_is_pending_at_once_the_first_time() -> None:
    """F6: the error of the attempt says that its worker was lost."""
    job = held(max_attempts=3)
    lapse(job.id)
    reserved = columns(job.id)
    before = database_now()
    with changes(job.id) as changed:
        assert store.reap(connection) == [(job.id, "scripted", "default", "pending", 1, "w-1")]
    run_after = changed.pop("run_after")
    assert before <= run_after <= database_now()
    assert changed == NO_LEASE | {"status": "pending", "lost": 1, "last_error": "Requeued after timeout"}
    assert history(job.id) == [
        {
            "attempt": 1, "outcome": "lost", "error_class": "", "traceback": "", "worker": "w-1", "log": "",
            "error": "Lost worker w-1: it stopped extending its lease", "started_at": reserved["last_attempted_at"],
            "finished_at": run_after,
        }
    ]  # fmt: skip


def test_a_job_that_loses_worker_after_worker_waits_longer_and_ends_dead() -> None:
    """F13: attempts count in the claim, so a pill that kills its worker is worn out."""
    job = JobFactory(max_attempts=4)
    waits = []
    while columns(job.pk)["status"] == "pending":
        Job.objects.update(run_after=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
        claim()
        lapse(job.pk)
        now = database_now()
        store.reap(connection)
        waits.append(round((columns(job.pk)["run_after"] - now).total_seconds()))
    assert waits[0] == 0
    assert 20 <= waits[1] <= 21
    assert 40 <= waits[2] <= 41
    row = columns(job.pk)
    assert (row["status"], row["attempts"], row["lost"]) == ("dead", 4, 4)
    assert row["finished_at"] is not None
    assert row["last_error"] == "\n".join(["Requeued after timeout"] * 3 + ["Timeout exceeded"])
    assert [r["outcome"] for r in history(job.pk)] == ["lost"] * 4


def test_an_attempt_that_ends_breaks_the_row_of_lost_ones() -> None:
    job = held(lost=1)
    store.retry(connection, job.id, job.lease, error="boom", delay=0)
    [job] = claim()
    lapse(job.id)
    store.reap(connection)
    assert columns(job.id)["run_after"] <= database_now()


def test_the_last_attempt_is_dead() -> None:
    job = held(max_attempts=1, last_error="earlier")
    lapse(job.id)
    with changes(job.id) as changed:
        assert store.reap(connection)[0][3:5] == ("dead", 1)
    assert changed.pop("finished_at") is not None
    assert changed == NO_LEASE | {"status": "dead", "lost": 1, "last_error": "earlier\nTimeout exceeded"}


def test_one_that_somebody_asked_to_cancel_is_cancelled() -> None:
    job = held()
    store.cancel(connection, [job.id])
    lapse(job.id)
    assert store.reap(connection)[0][3] == "cancelled"
    row = columns(job.id)
    assert (row["status"], row["finished_at"] is not None) == ("cancelled", True)


@pytest.mark.parametrize("trait", [None, "reserved", "cancel_requested", "retrying", "done", "dead", "expired"])
def test_nothing_else_is_touched(trait: str | None) -> None:
    """F3: elapsed time alone is no reason."""
    JobFactory(**{trait: True} if trait else {})
    Job.objects.update(started_at=dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    with nothing_changes():
        assert store.reap(connection) == []


def test_it_needs_nothing_but_the_row() -> None:
    """F8, F9, F12: no row of the worker, which beats or not, no handler, no queue that this process serves."""
    job = JobFactory(lapsed=True, queue="elsewhere", kind="unknown", worker="w-9")
    Worker.objects.create(name="w-9", host="h", pid=1, threads=1)
    assert [row[0] for row in store.reap(connection)] == [job.pk]
    assert columns(job.pk)["attempts"] == 1
    assert columns(job.pk)["status"] == "pending"


def test_at_most_a_batch() -> None:
    JobFactory.create_batch(5, lapsed=True, history=False)
    assert [len(store.reap(connection, batch=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_rows_that_others_hold_are_passed_over(hold_row: Hold) -> None:
    first, second = JobFactory(lapsed=True), JobFactory(lapsed=True)
    hold_row(first.pk)
    assert [row[0] for row in store.reap(connection)] == [second.pk]


def test_each_waits_another_while() -> None:
    """F106: the jitter is drawn for each row."""
    JobFactory.create_batch(50, lapsed=True, lost=1, history=False)
    now = database_now()
    store.reap(connection)
    waits = sorted((t - now).total_seconds() for t in Job.objects.values_list("run_after", flat=True))
    assert len(set(waits)) == 50
    assert waits[0] >= 10
    assert waits[-1] <= 11.5


def test_error_text_does_not_grow_for_ever() -> None:
    job = JobFactory(lapsed=True, last_error="x" * 1_000_000)
    store.reap(connection)
    assert len(columns(job.pk)["last_error"]) < 11_000


def test_the_counter_stops_where_its_column_ends() -> None:
    """F81"""
    job = JobFactory(lapsed=True, lost=32767, attempts=40_000, max_attempts=50_000, history=False)
    store.reap(connection)
    assert columns(job.pk)["lost"] == 32767


def test_a_wish_to_run_again_is_granted_when_the_holder_dies() -> None:
    job = held(dedupe_key="k", max_attempts=1)
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgjobs_enqueue('scripted', '{\"n\": 2}', p_dedupe_key => 'k', p_on_conflict => 'rerun')")
    lapse(job.id)
    store.reap(connection)
    assert Job.objects.get(status="pending").payload == {"n": 2}


def test_workers_are_told(heard: Callable[[], list[str]]) -> None:
    JobFactory(lapsed=True, queue="a")
    JobFactory(lapsed=True, queue="a")
    JobFactory(lapsed=True, queue="b", attempts=10)
    store.reap(connection)
    assert heard() == ["a"]
