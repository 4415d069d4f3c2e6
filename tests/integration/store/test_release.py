"""release: reserved → pending now, the attempt given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.db import connection

from pgjobs import store
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import NO_LEASE, changes, claim, columns, database_now, held, history

pytestmark = pytest.mark.django_db


def release(job: store.ClaimedJob, *, started: bool, reason: str = "") -> str:
    return store.release(connection, [job.id], [job.lease], started=started, reason=reason)[job.id]


def test_one_that_had_not_started_is_as_it_was() -> None:
    job = held()
    before = database_now()
    with changes(job.id) as changed:
        assert release(job, started=False) == "pending"
    assert before <= changed.pop("run_after") <= database_now()
    assert changed == NO_LEASE | {
        "status": "pending",
        "attempts": 0,
        "refunds": 1,
        "worker_ids": [],
        "started_at": None,
    }
    assert history(job.id) == []


def test_one_that_had_not_started_keeps_what_earlier_attempts_left() -> None:
    job = held(retrying=True, run_after=database_now(), lost=1)
    with changes(job.id) as changed:
        assert release(job, started=False, reason="stopping") == "pending"
    assert changed.keys() == NO_LEASE.keys() | {"status", "attempts", "refunds", "worker_ids", "run_after"}
    assert (columns(job.id)["last_error"], columns(job.id)["lost"], changed["worker_ids"]) == ("boom", 1, ["w-1"])


def test_one_that_had_started_has_a_row_of_history() -> None:
    """F16: a deploy is not a failure."""
    job = held()
    reserved = columns(job.id)
    with changes(job.id) as changed:
        assert release(job, started=True, reason="worker is stopping") == "pending"
    run_after = changed.pop("run_after")
    assert changed == NO_LEASE | {
        "status": "pending", "attempts": 0, "refunds": 1, "worker_ids": [], "last_error": "worker is stopping"
    }  # fmt: skip
    assert history(job.id) == [
        {
            "attempt": 1, "outcome": "interrupted", "error_class": "", "error": "worker is stopping", "traceback": "",
            "worker": "w-1", "started_at": reserved["last_attempted_at"], "finished_at": run_after, "log": "",
        }
    ]  # fmt: skip


def test_a_started_job_is_refunded_five_times_then_its_attempts_count() -> None:
    """F16: ten deploys a day do not kill a job, but a pill cannot hide behind them for ever."""
    job = JobFactory(max_attempts=2)
    seen = []
    while columns(job.pk)["status"] == "pending":
        [claimed] = claim()
        release(claimed, started=True, reason="stopping")
        row = columns(job.pk)
        seen.append((row["status"], row["attempts"], row["refunds"]))
    assert seen == [("pending", 0, n) for n in range(1, 6)] + [("pending", 1, 5), ("dead", 2, 5)]
    row = columns(job.pk)
    assert row["finished_at"] is not None
    assert row["worker_ids"] == ["w-1", "w-1"]
    assert len(history(job.pk)) == 7


def test_one_that_had_not_started_is_always_refunded() -> None:
    job = held(refunds=5, max_attempts=1)
    assert release(job, started=False) == "pending"
    assert (columns(job.id)["attempts"], columns(job.id)["refunds"]) == (0, 6)


def test_the_counter_stops_where_its_column_ends() -> None:
    """F81"""
    job = held(refunds=32767)
    assert release(job, started=False) == "pending"
    assert columns(job.id)["refunds"] == 32767


def test_a_missing_reason_or_worker_stops_nobody() -> None:
    job = JobFactory(reserved=True, attempts=0, worker=None, reserved_by="go", lease=5)
    with connection.cursor() as cursor:
        cursor.execute("SELECT outcome FROM pgjobs_release(%s, %s, true, NULL)", [[job.pk], [5]])
        assert cursor.fetchone() == ("pending",)
    assert columns(job.pk)["attempts"] == 0


def test_an_answer_for_each(hold_row: Hold) -> None:
    JobFactory.create_batch(4)
    jobs = claim()
    hold_row(jobs[0].id)
    leases = [j.lease for j in jobs]
    leases[1] ^= 1
    store.cancel(connection, [jobs[2].id])
    assert store.release(connection, [j.id for j in jobs], leases, started=False) == {
        jobs[0].id: "busy", jobs[1].id: "lost", jobs[2].id: "cancelled", jobs[3].id: "pending",
    }  # fmt: skip


def test_others_are_told_that_there_is_work(heard: Callable[[], list[str]]) -> None:
    jobs = [held(queue=queue) for queue in ("a", "b", "b", "c")]
    store.cancel(connection, [jobs[3].id])
    heard()
    store.release(connection, [j.id for j in jobs], [j.lease for j in jobs], started=False)
    assert sorted(heard()) == ["a", "b"]
