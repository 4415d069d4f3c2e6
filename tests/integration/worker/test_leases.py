"""Who owns a job: beats, lost leases, returned jobs, and writes that fail (F1, F3, F5, F8, F10, F13, F15, F22)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import OperationalError, connections

from pgjobs import store
from pgjobs.models import Job
from tests.factories import JobFactory
from tests.integration.worker.conftest import sql, steal
from tests.rows import columns, history
from tests.testapp import audit, script
from tests.testapp.jobs import scripted, scripted_now
from tests.waiting import wait_until
from tests.worker_harness import Handlers, Workers


def test_a_long_job_is_kept_by_its_beats(workers: Workers) -> None:
    """F3: three leases long, a second worker that reaps beside it, one run."""
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1]])
        workers.start(LEASE=1, HEARTBEAT=0.3)
        wait_until(lambda: "at gate" in audit.events(job.id))
        workers.start(LEASE=1, HEARTBEAT=0.3)
        first = job.get().reserved_until
        wait_until(lambda: (job.get().reserved_until - first).total_seconds() > 3)
        open_gate()
        wait_until(lambda: job.get().status == "done")
    assert (job.get().attempts, audit.events(job.id).count("start")) == (1, 1)


@pytest.mark.parametrize(
    "ending",
    [["return", 1], ["raise"], ["retry", 0], ["snooze", 0], ["fail"], ["cancel"], ["raise", "TimeoutError"]],
    ids=lambda step: "-".join(map(str, step)),
)
def test_no_ending_of_a_lost_attempt_changes_the_row(workers: Workers, ending: list[Any]) -> None:
    """F1, F15: whatever A says after B took over."""
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1], ending])
        worker = workers.start(HEARTBEAT=0.9)
        wait_until(lambda: "at gate" in audit.events(job.id))
        steal(job.id)
        before = columns(job.id)
        open_gate()
        worker.wait_recorded(1)
        worker.stop()
    assert worker.recorded == {"lost": 1}
    assert columns(job.id) == before
    assert history(job.id) == []


def test_an_id_that_still_runs_here_is_taken_over(workers: Workers) -> None:
    """Its lease lapsed while it ran, and the same process claims it: the run goes on under the new lease."""
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1], ["return", "once"]])
        worker = workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        sql("UPDATE pgjobs_job SET reserved_until = now() - interval '1 s' WHERE id = %s", job.id)
        sql("SELECT pgjobs_reap()")  # before any beat
        wait_until(lambda: job.get().attempts == 2 and job.get().status == "reserved")
        open_gate()
        worker.wait_recorded(1)
    row = job.get()
    assert (row.status, row.result, row.attempts) == ("done", "once", 2)
    assert audit.events(job.id).count("start") == 1


def test_one_taken_over_for_its_last_attempt_has_no_further(workers: Workers) -> None:
    with script.closed_gate() as open_gate:
        job = scripted_now.using(max_attempts=2).enqueue(steps=[["gate", 1], ["raise"]])
        worker = workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        sql("UPDATE pgjobs_job SET reserved_until = now() - interval '1 s' WHERE id = %s", job.id)
        sql("SELECT pgjobs_reap()")
        wait_until(lambda: job.get().attempts == 2)
        open_gate()
        worker.wait_recorded(1)
    assert (job.get().status, job.get().attempts) == ("dead", 2)


# The reaper ----------------------------------------------------------------------------------------------------------


def test_lapsed_jobs_return_while_every_thread_is_busy(workers: Workers) -> None:
    """F10, F8: the rescue is no job, and needs no row of the worker that died."""
    with script.closed_gate() as open_gate:
        scripted.enqueue(steps=[["gate", 1]])
        workers.start(THREADS=1)
        wait_until(lambda: "at gate" in audit.events())
        orphan = JobFactory(lapsed=True, kind="of another service")
        last = JobFactory(lapsed=True, kind="of another service", max_attempts=1)
        wait_until(lambda: Job.objects.get(pk=orphan.pk).status == "pending", seconds=5)
        wait_until(lambda: Job.objects.get(pk=last.pk).status == "dead", seconds=5)
        open_gate()
    assert history(orphan.pk)[-1]["outcome"] == "lost"


def test_a_lease_that_lapses_soon_is_looked_at_soon(workers: Workers) -> None:
    """Not at the next beat but one: the keeper knows when."""
    orphan = JobFactory(reserved=True, kind="unknown")
    sql("UPDATE pgjobs_job SET reserved_until = clock_timestamp() + interval '0.5 s' WHERE id = %s", orphan.pk)
    workers.start(LEASE=30, HEARTBEAT=10)
    wait_until(lambda: Job.objects.get(pk=orphan.pk).status == "pending", seconds=5)


def test_a_restarted_worker_sweeps_for_all_its_life(workers: Workers) -> None:
    """F7: the lease lapses only after the new worker has started."""
    orphan = JobFactory(reserved=True, kind="scripted", payload={"steps": []})
    workers.start()
    sql("UPDATE pgjobs_job SET reserved_until = clock_timestamp() + interval '1 s' WHERE id = %s", orphan.pk)
    wait_until(lambda: Job.objects.get(pk=orphan.pk).status == "done", seconds=8)
    assert Job.objects.get(pk=orphan.pk).attempts == 2


# Writes that fail ----------------------------------------------------------------------------------------------------


class Failing:
    """A function of the store that raises some times before it works."""

    def __init__(self, function: Any, times: float) -> None:
        self.function, self.left = function, times

    def __call__(self, *args: Any, **options: Any) -> Any:
        if self.left > 0:
            self.left -= 1
            raise OperationalError("the test says no")
        return self.function(*args, **options)


@pytest.mark.parametrize("verb", ["finish_many", "retry", "bury", "fail", "snooze", "cancel_held"])
def test_an_ending_that_cannot_be_written_three_times_is_written_then(
    workers: Workers, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """F5 (a), F22."""
    monkeypatch.setattr(store, verb, Failing(getattr(store, verb), 3))
    step, ends = {
        "finish_many": (["return", 1], "done"),
        "retry": (["retry", 3600], "pending"),
        "bury": (["raise"], "dead"),
        "fail": (["fail"], "failed"),
        "snooze": (["snooze", 3600], "pending"),
        "cancel_held": (["cancel"], "cancelled"),
    }[verb]
    job = scripted.using(max_attempts=1 if verb == "bury" else 5).enqueue(steps=[step])
    workers.drain()
    assert job.get().status == ends
    assert audit.events(job.id).count("start") == 1


def test_an_ending_that_can_never_be_written_lets_its_lease_lapse(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F5 (b): no beat keeps a job whose handler has ended."""
    monkeypatch.setattr(store, "finish_many", Failing(store.finish_many, float("inf")))
    job = scripted.enqueue(steps=[["return", 1]])
    broken = workers.start(LEASE=1, HEARTBEAT=0.3)
    wait_until(lambda: "end" in audit.events(job.id))
    wait_until(lambda: any(h["outcome"] == "lost" for h in history(job.id)), "the lease to lapse", 10)
    monkeypatch.undo()
    wait_until(lambda: job.get().status == "done")
    broken.stop()


def test_a_row_that_somebody_holds_is_finished_when_they_let_go(workers: Workers, connect: Any) -> None:
    """It waits for nobody meanwhile: other jobs end."""
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1], ["return", 1]])
        worker = workers.start(THREADS=2)
        wait_until(lambda: "at gate" in audit.events(job.id))
        holder = connect(autocommit=False)
        holder.execute("SELECT 1 FROM pgjobs_job WHERE id = %s FOR UPDATE", [job.id])
        open_gate()
        other = scripted.enqueue(steps=[])
        wait_until(lambda: other.get().status == "done")
        assert job.get().status == "reserved"
        holder.rollback()
        wait_until(lambda: job.get().status == "done")
        worker.stop()


def test_a_claim_that_keeps_failing_for_no_reason_of_the_database_ends_the_worker(
    workers: Workers, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F40: with a code that says so, and nothing in its hands."""
    running, release = threading.Event(), threading.Event()

    @handlers
    def hold() -> str:
        running.set()
        release.wait(20)
        return "finished"

    job = hold.enqueue()
    worker = workers.start(GRACE=5)
    assert running.wait(10)

    def broken(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("a fault of the program")

    monkeypatch.setattr(store, "claim", broken)
    monkeypatch.setattr("pgjobs.worker.loop.LONGEST", 0.05)
    wait_until(lambda: worker.worker.exit_code, seconds=20)
    release.set()
    assert worker.ended().code == 70
    assert (job.get().status, job.get().result) == ("done", "finished")


def test_jobs_in_the_buffer_survive_an_outage(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are to be given back, which fails for a while: the worker goes on, and none is lost."""
    monkeypatch.setattr(store, "release", Failing(store.release, 2))
    for _ in range(30):
        scripted.using(priority=100).enqueue(steps=[])
    with script.closed_gate() as open_gate:
        slow = scripted.using(priority=10).enqueue(steps=[["gate", 1]])
        rest = [scripted.enqueue(steps=[]) for _ in range(10)]
        worker = workers.start(THREADS=1, LEASE=1.5)
        wait_until(lambda: "at gate" in audit.events(slow.id))
        wait_until(lambda: Job.objects.filter(status="reserved").count() == 1, "the rest to be given back")
        open_gate()
        wait_until(lambda: {job.get().status for job in rest} == {"done"})
        worker.stop()
    assert worker.code == 0


def test_jobs_in_the_buffer_whose_rows_are_held_are_given_back_later(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F18: the beat holds them just then, or an operator. They must not be forgotten: nobody would extend their lease, nor give
    them back, and an attempt would be burnt.
    """
    release, told = store.release, list[int]()

    def busy_once(connection: Any, ids: Any, leases: Any, **options: Any) -> dict[int, str]:
        if not told:
            told.extend(ids)
            return dict.fromkeys(ids, "busy")
        return release(connection, ids, leases, **options)

    monkeypatch.setattr(store, "release", busy_once)
    for _ in range(30):
        scripted.using(priority=100).enqueue(steps=[])
    with script.closed_gate() as open_gate:
        slow = scripted.using(priority=10).enqueue(steps=[["gate", 1]])
        rest = [scripted.enqueue(steps=[]) for _ in range(10)]
        worker = workers.start(THREADS=1, LEASE=3)
        wait_until(lambda: "at gate" in audit.events(slow.id))
        wait_until(lambda: told and Job.objects.filter(status="reserved").count() == 1, "the rest to be given back")
        open_gate()
        wait_until(lambda: {job.get().status for job in rest} == {"done"})
        worker.stop()
    assert {job.get().attempts for job in rest} == {1}
    assert not [row for job in rest for row in history(job.id)], "no lease has lapsed"


def test_every_own_connection_may_be_ended_at_any_time(workers: Workers) -> None:
    """F22, F38: again and again while jobs run; each runs once, and the listener returns."""
    worker = workers.start({"listen": True}, THREADS=2)
    jobs = []
    for _ in range(5):
        jobs += [scripted.enqueue(steps=[["return", 1]]) for _ in range(5)]
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'pgjobs %%'"
            " AND datname = current_database()")  # fmt: skip
    wait_until(lambda: {job.get().status for job in jobs} == {"done"}, seconds=30)
    wait_until(lambda: worker.worker._listener.listening, "the listener to return", 10)
    last = scripted.enqueue(steps=[])
    wait_until(lambda: last.get().status == "done", "the listener to hear", 5)
    connections.close_all()


def test_the_listener_pins_nothing(workers: Workers) -> None:
    """F50: idle, without a snapshot, and it reads what it is sent while every thread is busy."""
    with script.closed_gate() as open_gate:
        scripted.enqueue(steps=[["gate", 1]])
        worker = workers.start({"listen": True}, THREADS=1)
        wait_until(lambda: worker.worker._listener.listening)
        wait_until(lambda: "at gate" in audit.events())
        sql("SELECT pg_notify('pgjobs', 'default' || n) FROM generate_series(1, 20000) n")
        wait_until(lambda: sql("SELECT pg_notification_queue_usage()") == [(0,)])
        wait_until(
            lambda: sql(
                "SELECT state, backend_xmin FROM pg_stat_activity WHERE application_name = 'pgjobs listener'"
                " AND datname = current_database()"
            ) == [("idle", None)]
        )  # fmt: skip
        open_gate()


@pytest.mark.parametrize("queue", ["x" * 255, 'ünï\'çödé "quoted" ;-- $1 %s', "a\nb"], ids=["long", "odd", "newline"])
def test_any_queue_name_is_heard(workers: Workers, queue: str) -> None:
    """F49."""
    worker = workers.start({"listen": True, "queues": [queue]})
    wait_until(lambda: worker.worker._listener.listening)
    job = scripted.using(queue=queue).enqueue(steps=[["return", "x" * 100_000]])
    wait_until(lambda: job.get().status == "done", seconds=5)


def test_a_claim_whose_answer_is_lost_costs_no_attempt(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks between the commit and the answer: nobody here knows of the jobs, and they do not wait for their
    lease to lapse.
    """
    claim, lost = store.claim, list[int]()

    def claim_and_lose(connection: Any, *args: Any, **options: Any) -> Any:
        answer = claim(connection, *args, **options)
        if answer.jobs and not lost:
            lost.extend(job.id for job in answer.jobs)
            connection.close()
            raise OperationalError("server closed the connection unexpectedly")
        return answer

    monkeypatch.setattr(store, "claim", claim_and_lose)
    ids = [scripted.enqueue(steps=[["return", n]]).id for n in range(3)]
    worker = workers.start({"suspects": None}, LEASE=60, HEARTBEAT=0.2)
    worker.wait_recorded(3, seconds=5)
    assert lost
    assert list(Job.objects.filter(pk__in=ids).values_list("status", "attempts")) == [("done", 1)] * 3
    assert [history(id_) for id_ in ids] == [[]] * 3
    assert Job.objects.get(pk=lost[0]).refunds == 1
