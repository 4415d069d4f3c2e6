"""Which jobs a worker takes, how many, and when."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection, connections
from django.utils import timezone

from pgjobs import Fixed, enqueue, store
from pgjobs.models import Job
from tests.factories import JobFactory
from tests.integration.worker.conftest import Statements
from tests.rows import history
from tests.testapp import audit, script
from tests.testapp.jobs import scripted
from tests.waiting import wait_until
from tests.worker_harness import Handlers, Workers


def reserved() -> int:
    return Job.objects.filter(status="reserved").count()


def train(count: int = 30) -> None:
    """Quick jobs of the highest priority: the worker learns that its jobs are quick."""
    for _ in range(count):
        enqueue("echo", {}, priority=100)


# Order ---------------------------------------------------------------------------------------------------------------


def test_priority_then_age(workers: Workers, handlers: Handlers) -> None:
    order: list[str] = []

    @handlers
    def note(name: str) -> None:
        order.append(name)

    for name, priority in [("b1", 0), ("c", -5), ("a", 100), ("b2", 0)]:
        note.using(priority=priority).enqueue(name=name)
    workers.drain(THREADS=1)
    assert order == ["a", "b1", "b2", "c"]


def test_a_slow_job_holds_up_nothing_but_its_thread(workers: Workers) -> None:
    """F157: slots are refilled as each frees."""
    with script.closed_gate() as open_gate:
        slow = scripted.using(priority=10).enqueue(steps=[["gate", 1]])
        for _ in range(100):
            scripted.enqueue(steps=[["return", 1]])
        worker = workers.start(THREADS=2)
        wait_until(lambda: worker.recorded.get("done") == 100)
        assert slow.get().status == "reserved"
        open_gate()
        wait_until(lambda: slow.get().status == "done")


# How many ------------------------------------------------------------------------------------------------------------


def test_quick_jobs_are_claimed_in_batches(workers: Workers, statements: Statements) -> None:
    train(300)
    workers.drain(THREADS=1)
    assert len(statements.of("pgjobs_claim_many(")) < 60


def test_slow_jobs_are_claimed_one_by_one(workers: Workers) -> None:
    for _ in range(2):
        scripted.using(priority=10).enqueue(steps=[["sleep", 0.25]])
    with script.closed_gate():
        last = scripted.using(priority=5).enqueue(steps=[["gate", 1]])
        for _ in range(10):
            scripted.enqueue(steps=[])
        workers.start(THREADS=1)
        wait_until(lambda: "at gate" in audit.events(last.id))
        assert reserved() == 1


def test_no_claim_while_no_thread_is_free(workers: Workers, statements: Statements) -> None:
    """F60. The keeper's beats are the clock."""
    with script.closed_gate():
        for _ in range(8):
            scripted.enqueue(steps=[["gate", 1]])
        workers.start(THREADS=2)
        wait_until(lambda: audit.events().count("at gate") == 2)
        before = len(statements.of("pgjobs_claim_many(", '"scripted"'))  # for the threads; the event loop is free
        beats = len(statements.of("pgjobs_beat("))
        wait_until(lambda: len(statements.of("pgjobs_beat(")) >= beats + 4)
        assert len(statements.of("pgjobs_claim_many(", '"scripted"')) == before


def test_a_last_attempt_never_waits_in_the_buffer(workers: Workers) -> None:
    """It would be lost with the process, and dead without having run."""
    train()
    with script.closed_gate() as open_gate:
        first = scripted.using(priority=10).enqueue(steps=[["gate", 1]])
        last = [scripted.using(max_attempts=1).enqueue(steps=[]) for _ in range(10)]
        worker = workers.start(THREADS=1, LEASE=600)  # so that nothing is given back for its age
        wait_until(lambda: "at gate" in audit.events(first.id))
        wait_until(lambda: reserved() == 1)
        open_gate()
        wait_until(lambda: worker.recorded.get("done", 0) == 30 + 11)
    rows = [job.get() for job in last]
    assert {(row.status, row.attempts) for row in rows} == {("done", 1)}


def test_what_waits_too_long_in_the_buffer_is_given_back(workers: Workers) -> None:
    train()
    with script.closed_gate() as open_gate:
        slow = scripted.using(priority=10).enqueue(steps=[["gate", 1]])
        rest = [scripted.enqueue(steps=[]) for _ in range(10)]
        worker = workers.start(THREADS=1, LEASE=1.5)
        wait_until(lambda: "at gate" in audit.events(slow.id))
        other = workers.start(THREADS=1, LEASE=1.5)
        wait_until(lambda: {job.get().status for job in rest} == {"done"}, "another worker to run them")
        open_gate()
        wait_until(lambda: slow.get().status == "done")
        worker.stop()
        other.stop()
    assert {job.get().attempts for job in rest} == {1}
    assert all(not history(job.id) for job in rest), "that is no failure"


def test_suspects_of_threads_do_not_starve_those_of_the_event_loop(workers: Workers) -> None:
    """One runs at a time, wherever: a coroutine has its turn while there are still others."""
    threads = [JobFactory(suspect=True) for _ in range(6)]
    coroutine = JobFactory(kind="scripted_async", suspect=True)
    workers.drain({"suspects": True}, THREADS=1, PREFETCH_MS=0, ASYNC_CONCURRENCY=1)
    started = Job.objects.filter(status="done").order_by("started_at").values_list("pk", flat=True)
    assert len(started) == len(threads) + 1
    assert list(started).index(coroutine.pk) <= 1


# Pauses --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "name"), [("queue", "slow lane"), ("kind", "scripted")])
def test_a_pause_stops_new_claims_and_a_resume_wakes(workers: Workers, scope: str, name: str) -> None:
    with script.closed_gate() as open_gate:
        running = scripted.using(queue="slow lane").enqueue(steps=[["gate", 1]])
        worker = workers.start({"listen": True})
        wait_until(lambda: "at gate" in audit.events(running.id))
        store.pause(connection, scope, name)
        waiting = scripted.using(queue="slow lane").enqueue(steps=[])
        beside = enqueue("echo", {}, queue="fast lane")
        wait_until(lambda: beside.get().status == "done")
        open_gate()
        wait_until(lambda: running.get().status == "done")  # what runs is not stopped
        assert waiting.get().status == "pending"
        store.resume(connection, scope, name)
        wait_until(lambda: waiting.get().status == "done", seconds=5)
        worker.stop()


def test_a_pause_ends_by_itself(workers: Workers) -> None:
    store.pause(connection, "queue", "default", until=timezone.now() + dt.timedelta(seconds=1))
    job = scripted.enqueue(steps=[])
    workers.start({"listen": True})
    wait_until(lambda: job.get().status == "done", seconds=5)
    row = job.get()
    assert (row.started_at - row.created_at).total_seconds() > 0.7


# Kinds ---------------------------------------------------------------------------------------------------------------


def test_unknown_kinds_are_left_alone(workers: Workers) -> None:
    unknown = JobFactory(kind="of another service", priority=100)
    lapsed = JobFactory(kind="of yet another", queue="elsewhere", lapsed=True)
    known = scripted.enqueue(steps=[])
    workers.drain({"queues": ["default"]})
    unknown.refresh_from_db()
    assert (unknown.status, unknown.attempts) == ("pending", 0)
    assert known.get().status == "done"
    lapsed.refresh_from_db()
    assert (lapsed.status, lapsed.attempts) == ("pending", 1), (
        "reaped all the same: that needs nothing but the row (F12)"
    )


def test_queues_and_excluded_queues(workers: Workers) -> None:
    jobs = {queue: scripted.using(queue=queue).enqueue(steps=[]) for queue in ("a", "b", "c")}
    workers.drain({"queues": ["a", "b"], "exclude_queues": ["b"]})
    assert {queue: job.get().status for queue, job in jobs.items()} == {"a": "done", "b": "pending", "c": "pending"}
    workers.drain({"exclude_queues": ["c"]})
    assert {queue: job.get().status for queue, job in jobs.items()} == {"a": "done", "b": "done", "c": "pending"}


def test_an_alias_keeps_old_jobs_running(workers: Workers) -> None:
    """F126: a handler was renamed."""
    job = JobFactory(kind="plus", payload={"a": 2, "b": 3})
    workers.drain()
    job.refresh_from_db()
    assert (job.status, job.result, job.kind) == ("done", 5, "plus")


def test_an_old_payload_is_upgraded(workers: Workers, handlers: Handlers) -> None:
    """F127: jobs from before the new argument."""

    @handlers(upgrade=lambda old: {"a": old["a"], "b": old.get("b", 10)})
    def grown(a: int, b: int) -> int:
        return a + b

    job = JobFactory(kind="grown", payload={"a": 1})
    workers.drain()
    job.refresh_from_db()
    assert (job.status, job.result) == ("done", 11)


@pytest.mark.parametrize("payload", [{}, {"a": 1, "b": 2, "surplus": 3}, {"other": 1}], ids=str)
def test_a_payload_that_cannot_fit_is_a_dead_letter_at_once(workers: Workers, payload: dict[str, Any]) -> None:
    """F127: the error names the argument that does not fit."""
    job = JobFactory(kind="add", payload=payload, queue="sums")
    workers.drain()
    job.refresh_from_db()
    assert (job.status, job.attempts, job.error_class) == ("failed", 1, "pgjobs.exceptions.PayloadTypeError")
    assert "payload." in (job.last_error or "")
    assert "upgrade" in (job.last_error or "")


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_an_upgrade_that_raises_is_an_ordinary_failure(
    workers: Workers, handlers: Handlers, error: type[BaseException]
) -> None:
    def upgrade(old: dict[str, Any]) -> dict[str, Any]:
        raise error("upgrade")

    @handlers(upgrade=upgrade, max_attempts=2, backoff=Fixed(0, jitter=0))
    def grown(a: int) -> None: ...

    job = JobFactory(kind="grown", payload={}, max_attempts=2)
    workers.drain()
    job.refresh_from_db()
    assert (job.status, job.attempts, job.last_error) == ("dead", 2, f"{error.__name__}: upgrade")


# Time ----------------------------------------------------------------------------------------------------------------


def test_an_expired_job_never_runs(workers: Workers) -> None:
    """F153."""
    job = JobFactory(expired=True, payload={"steps": []})
    later = scripted.using(
        run_after=dt.timedelta(seconds=2), expires_at=timezone.now() + dt.timedelta(seconds=0.3)
    ).enqueue(steps=[])
    workers.start()
    wait_until(lambda: {Job.objects.get(pk=pk).status for pk in (job.pk, later.id)} == {"cancelled"})
    assert later.get().last_error == "expired"
    assert audit.events() == []


@pytest.mark.parametrize("listen", [True, False], ids=["listening", "polling"])
def test_future_jobs_start_on_time_whatever_the_poll_interval(workers: Workers, listen: bool) -> None:
    """F48: the time is known before the worker sleeps."""
    job = scripted.using(run_after=dt.timedelta(seconds=1)).enqueue(steps=[])
    workers.start({"listen": listen}, POLL_INTERVAL=30)
    wait_until(lambda: job.get().status == "done", seconds=6)
    row = job.get()
    assert row.started_at >= row.run_after


def test_a_sooner_job_shortens_the_sleep(workers: Workers) -> None:
    """F48: the second one is announced by another process."""
    far = scripted.using(run_after=dt.timedelta(seconds=20)).enqueue(steps=[])
    worker = workers.start({"listen": True})
    wait_until(lambda: worker.worker._listener.listening)
    near = scripted.using(run_after=dt.timedelta(seconds=1)).enqueue(steps=[])
    wait_until(lambda: near.get().status == "done", seconds=6)
    assert far.get().status == "pending"


def test_an_announcement_while_the_worker_claims(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer is already old when it arrives: the worker has to claim again."""
    claim, jobs = store.claim, []

    def slow_answer(*args: Any, **options: Any) -> Any:
        answer = claim(*args, **options)
        if answer.asleep and not jobs:
            jobs.append(scripted.using(run_after=dt.timedelta(seconds=1)).enqueue(steps=[]))
            connections.close_all()
            wait_until(lambda: worker.worker._claimer.wakes._rung)
        return answer

    monkeypatch.setattr(store, "claim", slow_answer)
    worker = workers.make({"listen": True}).begin()
    wait_until(lambda: jobs)
    wait_until(lambda: jobs[0].get().status == "done", seconds=6)


def test_a_retry_starts_on_time(workers: Workers, handlers: Handlers) -> None:
    """Nobody announces it: the worker that recorded it knows."""

    @handlers(backoff=Fixed(0.5, jitter=0))
    def second_time(ctx: Any) -> None:
        if ctx.attempt == 1:
            raise ValueError

    job = second_time.enqueue()
    workers.start({"listen": True}, POLL_INTERVAL=30)
    wait_until(lambda: job.get().status == "done", seconds=6)
