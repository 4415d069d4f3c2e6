"""undertake: a dead worker's jobs end by where each stood: crashed, suspect, done, or as if they had not been claimed."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from pgjobs import store
from pgjobs.models import Worker
from tests.factories import JobFactory, WorkerFactory
from tests.integration.store.conftest import Hold
from tests.rows import NO_LEASE, changes, claim, columns, database_now, held, history, nothing_changes

pytestmark = pytest.mark.django_db

CAUSE = "worker died: SIGSEGV"


def undertake(
    running: list[store.ClaimedJob] | None = None, returned: list[store.ClaimedJob] | None = None
) -> list[tuple[Any, ...]]:
    """What came of each: (event, id, status, attempts)."""
    pairs = [[(job.id, job.lease) for job in some or []] for some in (running, returned)]
    events = store.undertake(connection, "w-1", running=pairs[0], returned=pairs[1], cause=CAUSE)
    return [(event, id_, status, attempts) for event, id_, _, _, status, attempts in events]


def test_one_that_ran_alone_has_used_an_attempt_and_is_due_at_once() -> None:
    """F6, F13: the cause stands in its history; from now on it is a suspect."""
    job = held()
    reserved = columns(job.id)
    before = database_now()
    with changes(job.id) as changed:
        assert undertake([job]) == [("crashed", job.id, "pending", 1)]
    run_after = changed.pop("run_after")
    assert before <= run_after <= database_now()
    assert changed == NO_LEASE | {"status": "pending", "lost": 1, "suspect": True, "last_error": CAUSE}
    assert history(job.id) == [
        {
            "attempt": 1, "outcome": "crashed", "error_class": "", "error": CAUSE, "traceback": "", "worker": "w-1", "log": "",
            "started_at": reserved["last_attempted_at"], "finished_at": run_after,
        }
    ]  # fmt: skip


def test_one_that_crashes_again_waits_and_its_last_attempt_makes_it_dead() -> None:
    """F13: a pill must not spin, and must not live for ever."""
    job = held(max_attempts=2, lost=1)
    now = database_now()
    undertake([job])
    row = columns(job.id)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert 10 <= (row["run_after"] - now).total_seconds() <= 11.5
    job = held(max_attempts=1)
    with changes(job.id) as changed:
        assert undertake([job]) == [("crashed", job.id, "dead", 1)]
    assert changed.pop("finished_at") is not None
    assert (changed["status"], changed["last_error"]) == ("dead", CAUSE)


def test_of_several_nobody_knows_who_was_guilty() -> None:
    """All are given back with the attempt refunded, whatever their number; they run alone next."""
    jobs = [held(max_attempts=1) for _ in range(3)]
    assert undertake(jobs) == [("suspect", job.id, "pending", 0) for job in jobs]
    for job in jobs:
        row = columns(job.id)
        assert (row["suspect"], row["refunds"], row["lost"], row["worker_ids"]) == (True, 1, 0, [])
        [attempt] = history(job.id)
        assert (attempt["attempt"], attempt["outcome"]) == (1, "crashed")
        assert attempt["error"] == f"{CAUSE} (one of 3 that ran: given back, to run alone)"
    assert claim(suspects=False) == [], "ordinary processes do not take them"
    assert [job.id for job in claim(1, suspects=True)] == [jobs[0].id]


@pytest.mark.parametrize("size", [1, 2], ids=["alone", "among others"])
def test_one_that_somebody_asked_to_cancel_is_cancelled(size: int) -> None:
    """F24: it does not run again."""
    jobs = [held() for _ in range(size)]
    store.cancel(connection, [jobs[0].id])
    undertake(jobs)
    row = columns(jobs[0].id)
    assert (row["status"], row["finished_at"] is not None) == ("cancelled", True)


def test_one_that_had_returned_is_done() -> None:
    job = held()
    with changes(job.id) as changed:
        assert undertake(returned=[job]) == []
    assert changed.pop("finished_at") is not None
    assert changed == NO_LEASE | {"status": "done", "last_error": f"result not stored: {CAUSE}"}


def test_the_rest_had_not_begun() -> None:
    """F18: pending as if nobody had claimed them, however many attempts they may have."""
    running, waiting = held(), held(max_attempts=1)
    other = JobFactory(reserved=True, worker="w-2")
    before = columns(other.pk)
    assert ("released", waiting.id, "pending", None) in undertake([running])
    row = columns(waiting.id)
    assert (row["status"], row["attempts"], row["refunds"], row["suspect"]) == ("pending", 0, 1, False)
    assert history(waiting.id) == []
    assert columns(other.pk) == before


def test_its_row_for_people_goes() -> None:
    WorkerFactory(name="w-1")
    WorkerFactory(name="w-2")
    undertake()
    assert [worker.name for worker in Worker.objects.all()] == ["w-2"]


def test_a_lease_that_was_lost_meanwhile_is_nobody_s() -> None:
    """F1: reaped and claimed by another before the undertaker came."""
    job = held()
    store.release(connection, [job.id], [job.lease], started=False)
    [again] = claim(worker="w-2")
    assert again.id == job.id
    with nothing_changes():
        assert undertake([job]) == []
        assert undertake(returned=[job]) == []


@pytest.mark.django_db(transaction=True)
def test_what_somebody_holds_is_left_and_told(hold_row: Hold) -> None:
    """The server may not have noticed that the process is gone."""
    running, waiting = held(), held()
    free = [hold_row(job.id) for job in (running, waiting)]
    assert undertake([running]) == [("left", None, None, 2)]
    for let_go in free:
        let_go()
    assert undertake([running]) == [("crashed", running.id, "pending", 1), ("released", waiting.id, "pending", None)]
