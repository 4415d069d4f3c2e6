"""How run_jobs stops, beside what supervision/test_stopping.py shows: at any moment, and with jobs in its hands (F17, F18)."""

from __future__ import annotations

import signal
import time

import pytest

from pgjobs.models import Job, Worker
from tests.process.conftest import Start
from tests.testapp import audit, script
from tests.testapp.jobs import scripted
from tests.testapp.models import Audit
from tests.waiting import wait_until


def nothing_reserved() -> bool:
    return not Job.objects.filter(status="reserved").exists()


def test_the_lease_is_kept_while_it_stops(run_jobs: Start) -> None:
    """F17: beats go on until the last handler has ended, so nobody else starts the job."""
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1]])
        worker = run_jobs(PGJOBS_LEASE="4", PGJOBS_HEARTBEAT="0.5")
        wait_until(lambda: "at gate" in audit.events(job.id))
        worker.send(signal.SIGTERM)
        other = run_jobs(PGJOBS_LEASE="4", PGJOBS_HEARTBEAT="0.5").wait_ready()
        first = job.get().reserved_until
        wait_until(lambda: (job.get().reserved_until - first).total_seconds() > 2, "two more leases")
        open_gate()
        assert worker.wait() == 0
        wait_until(lambda: job.get().status == "done")
        assert other.stop() == 0
    assert audit.events(job.id).count("start") == 1


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda s: s.name)
def test_an_idle_worker_stops_at_once(run_jobs: Start, signum: int) -> None:
    worker = run_jobs().wait_ready()
    wait_until(lambda: Worker.objects.exists())
    began = time.monotonic()
    assert worker.stop(signum) == 0
    assert time.monotonic() - began < 4
    assert not Worker.objects.exists()


def test_many_claimed_jobs_are_all_given_back(run_jobs: Start) -> None:
    """F18: quick jobs are claimed in batches; a stop right then strands none, and each runs once in the end."""
    for _ in range(40):
        scripted.using(priority=10).enqueue(steps=[])
    for _ in range(60):
        scripted.enqueue(steps=[["sleep", 0.02]])
    worker = run_jobs("--threads", 1)
    wait_until(lambda: Audit.objects.filter(event="start").count() > 42)
    assert worker.stop() == 0
    assert nothing_reserved()
    assert run_jobs("--drain").wait() == 0
    assert set(Job.objects.values_list("status", "attempts")) == {("done", 1)}
    assert Audit.objects.filter(event="start").count() == 100


def test_a_signal_at_any_moment_of_the_start_strands_nothing(run_jobs: Start) -> None:
    """The start is cut at growing delays; what was claimed is given back, and the exit code is that of a clean stop once
    signals are handled. Until then the process just ends."""
    jobs = [scripted.enqueue(steps=[["sleep", 0.01]]) for _ in range(20)]
    worker = run_jobs("--drain")
    began = worker.started_at
    worker.wait_ready()
    usual = time.monotonic() - began
    worker.wait()
    for n in range(8):
        worker = run_jobs("--no-listen")
        while time.monotonic() < worker.started_at + usual * (0.6 + n * 0.08):
            time.sleep(0.005)  # the delays are what is tested
        code = worker.stop()
        assert code in (0, -signal.SIGTERM, 128 + signal.SIGTERM), worker.output
        assert nothing_reserved(), worker.output
        jobs += [scripted.enqueue(steps=[["sleep", 0.01]]) for _ in range(20)]
    assert run_jobs("--drain").wait() == 0
    assert {job.get().status for job in jobs} == {"done"}
    assert {job.get().attempts for job in jobs} == {1}


FORK_AND_STOP = """
import os, signal
fork = os.fork
def fork_and_stop():
    pid = fork()
    if pid:
        os.kill(os.getpid(), signal.SIGTERM)
    return pid
os.fork = fork_and_stop
"""


def test_a_signal_in_the_moment_of_the_fork_reaches_the_new_process(run_jobs: Start) -> None:
    worker = run_jobs(prelude=FORK_AND_STOP)
    assert worker.wait(seconds=8) == 0


def test_a_thread_that_a_handler_left_does_not_keep_it(run_jobs: Start) -> None:
    scripted.enqueue(steps=[["spawn", 3600]])
    assert run_jobs("--drain").wait() == 0


def test_who_stops_it_is_told_what_still_runs(run_jobs: Start) -> None:
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1]])
        worker = run_jobs(PGJOBS_GRACE="7.5")
        wait_until(lambda: "at gate" in audit.events(job.id))
        worker.send(signal.SIGTERM)
        worker.wait_for("pgjobs stops: 1 running job may finish, for 7.5 s at most; a second signal kills the worker")
        open_gate()
        assert worker.wait() == 0
    idle = run_jobs().wait_ready()
    assert idle.stop() == 0
    assert "pgjobs stops" not in idle.output
