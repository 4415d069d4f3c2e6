"""``--drain`` and ``--max-jobs``: run what there is, then end."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection

from pgjobs import enqueue, store
from pgjobs.models import Job
from tests.factories import JobFactory
from tests.testapp import audit
from tests.testapp.jobs import scripted, scripted_now
from tests.worker_harness import Handlers, Workers


def statuses() -> dict[str, int]:
    found: dict[str, int] = {}
    for status in Job.objects.values_list("status", flat=True):
        found[status] = found.get(status, 0) + 1
    return found


def test_an_empty_queue_ends_at_once(workers: Workers) -> None:
    assert workers.drain().recorded == {}


@pytest.mark.parametrize("threads", [1, 4])
def test_everything_due_is_run(workers: Workers, threads: int) -> None:
    for n in range(100):
        scripted.using(priority=n % 3, queue=f"q{n % 5}").enqueue(steps=[["return", n]])
    assert workers.drain(THREADS=threads).recorded == {"done": 100}
    assert audit.events().count("start") == 100


def test_what_is_not_due_or_not_ours_is_left(workers: Workers) -> None:
    later = scripted.using(run_after=dt.timedelta(hours=1)).enqueue(steps=[])
    failed = scripted.enqueue(steps=[["raise"]])  # again in some seconds
    snoozed = scripted.enqueue(steps=[["snooze", 60]])
    unknown = JobFactory(kind="unknown")
    store.pause(connection, "queue", "paused")
    paused = scripted.using(queue="paused").enqueue(steps=[])
    held = JobFactory(reserved=True, worker="somebody else")
    workers.drain()
    for job in (later, failed, snoozed, paused):
        assert job.get().status == "pending"
    assert audit.events(paused.id) == audit.events(later.id) == []
    unknown.refresh_from_db()
    held.refresh_from_db()
    assert (unknown.status, held.status) == ("pending", "reserved")


def test_retries_that_are_due_are_run(workers: Workers) -> None:
    job = scripted_now.enqueue(steps=[["raise"]], then=[[["raise"]], [["return"]]])
    workers.drain()
    assert (job.get().status, job.get().attempts) == ("done", 3)


def test_jobs_that_handlers_enqueue_are_run_too(workers: Workers, handlers: Handlers) -> None:
    @handlers
    def chain(left: int) -> None:
        if left:
            enqueue("chain", {"left": left - 1})

    chain.enqueue(left=20)
    assert workers.drain().recorded == {"done": 21}


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("most", [1, 7, 50])
def test_max_jobs_is_exact_and_strands_nothing(workers: Workers, most: int, threads: int) -> None:
    """F53: exactly so many are run, although quick jobs come in batches."""
    for _ in range(60):
        scripted.enqueue(steps=[])
    worker = workers.make({"max_jobs": most}, THREADS=threads).begin().ended()
    workers.check(worker)
    assert worker.recorded == {"done": most}
    assert statuses() == {"done": most, "pending": 60 - most}
    assert not Job.objects.filter(status="pending").exclude(attempts=0).exists()


def test_max_jobs_of_last_attempts(workers: Workers) -> None:
    """Jobs on their last attempt that were given back do not count."""
    for _ in range(40):
        scripted.using(max_attempts=1).enqueue(steps=[])
    worker = workers.make({"max_jobs": 30}, THREADS=2).begin().ended()
    assert worker.recorded == {"done": 30}
    assert statuses() == {"done": 30, "pending": 10}


def test_max_jobs_waits_for_them_to_come(workers: Workers) -> None:
    worker = workers.start({"max_jobs": 2})
    for _ in range(2):
        scripted.enqueue(steps=[])
    worker.ended()
    assert worker.recorded == {"done": 2}


def test_a_drain_with_max_jobs_ends_with_fewer(workers: Workers) -> None:
    scripted.enqueue(steps=[])
    assert workers.drain({"max_jobs": 5}).recorded == {"done": 1}


def test_the_introduction_says_where_and_what(workers: Workers) -> None:
    """F61."""
    JobFactory.create_batch(3)
    worker = workers.drain({"queues": ["mail", "sums"], "exclude_queues": ["spam"]}, THREADS=2)
    [line] = worker.said
    name = connection.settings_dict["NAME"]
    for part in (f"database '{name}' (alias 'default')", "schema 'public'", "queues: mail, sums but spam", "3 pending",
                 "scripted_now", "2 threads", worker.name):  # fmt: skip
        assert part in line


def test_what_cannot_be_stored_is_recorded_without_it(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch with one value that PostgreSQL refuses: it is found by halving, and loses only its result."""
    from django.db import DataError

    finish_many = store.finish_many

    def refuse(conn: Any, ids: Any, leases: Any, results: Any, notes: Any) -> Any:
        if any('"bad"' in text for text in results.values()):
            raise DataError("unsupported Unicode escape sequence")
        return finish_many(conn, ids, leases, results, notes)

    monkeypatch.setattr(store, "finish_many", refuse)
    good = [scripted.enqueue(steps=[["return", n]]) for n in range(9)]
    bad = scripted.enqueue(steps=[["return", "bad"]])
    workers.drain()
    assert [job.get().result for job in good] == list(range(9))
    row = bad.get()
    assert (row.status, row.attempts, row.result) == ("done", 1, None)
    assert "PostgreSQL refused it" in (row.last_error or "")
