"""How run_jobs stops: by signals, at any moment, with and without running jobs (F16, F17, F18, F58)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from pgjobs.models import Job, Worker
from tests.process.conftest import Start
from tests.rows import history
from tests.testapp import audit, script
from tests.testapp.jobs import scripted
from tests.testapp.models import Audit
from tests.waiting import wait_until


def nothing_reserved() -> bool:
    return not Job.objects.filter(status="reserved").exists()


def test_a_running_job_ends_within_the_grace(run_jobs: Start) -> None:
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1], ["return", "finished"]])
        worker = run_jobs()
        wait_until(lambda: "at gate" in audit.events(job.id))
        more = scripted.enqueue(steps=[])
        worker.send(signal.SIGTERM)
        wait_until(lambda: Worker.objects.filter(stopping=True).exists(), "the worker to say that it stops")
        later = scripted.enqueue(steps=[])
        open_gate()
        assert worker.wait() == 0
    row = job.get()
    assert (row.status, row.result, row.attempts) == ("done", "finished", 1)
    assert later.get().status == "pending"
    assert more.get().status in ("pending", "done")
    assert nothing_reserved()
    assert not Worker.objects.exists()


def test_the_lease_is_kept_while_it_stops(run_jobs: Start) -> None:
    """F17: beats go on until the last handler has ended, so nobody else starts the job."""
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1]])
        worker = run_jobs(PGJOBS_LEASE="1.5", PGJOBS_HEARTBEAT="0.5")
        wait_until(lambda: "at gate" in audit.events(job.id))
        worker.send(signal.SIGTERM)
        other = run_jobs(PGJOBS_LEASE="1.5", PGJOBS_HEARTBEAT="0.5").wait_ready()
        first = job.get().reserved_until
        wait_until(lambda: (job.get().reserved_until - first).total_seconds() > 2, "two more leases")
        open_gate()
        assert worker.wait() == 0
        wait_until(lambda: job.get().status == "done")
        assert other.stop() == 0
    assert audit.events(job.id).count("start") == 1


def test_a_grace_too_short_gives_the_job_back(run_jobs: Start) -> None:
    with script.closed_gate():
        job = scripted.enqueue(steps=[["gate", 1]])
        worker = run_jobs("--grace", 1)
        wait_until(lambda: "at gate" in audit.events(job.id))
        began = time.monotonic()
        assert worker.stop() == 0
        assert time.monotonic() - began < 6
    row = job.get()
    assert (row.status, row.attempts, row.refunds) == ("pending", 0, 1)
    assert [h["outcome"] for h in history(job.id)] == ["interrupted"]


def test_deploys_do_not_kill_a_long_job_but_a_pill_cannot_hide(run_jobs: Start) -> None:
    """F16: five interruptions cost nothing, then attempts count."""
    job = scripted.using(max_attempts=2).enqueue(steps=[["sleep", 3600]])
    from tests.factories import Job as Row

    Row.objects.filter(pk=job.id).update(refunds=5, updated_at=job.get().created_at)
    for expected in (("pending", 1), ("dead", 2)):
        starts = audit.events(job.id).count("start")
        worker = run_jobs("--grace", 0, "--no-listen")
        wait_until(lambda n=starts: audit.events(job.id).count("start") > n)  # type: ignore[misc]
        assert worker.stop() == 0
        row = job.get()
        assert (row.status, row.attempts) == expected


def test_two_interrupts_end_it_at_once(run_jobs: Start) -> None:
    """As a terminal sends them: to the whole group."""
    with script.closed_gate():
        job = scripted.enqueue(steps=[["gate", 1]])
        worker = run_jobs()
        wait_until(lambda: "at gate" in audit.events(job.id))
        os.killpg(worker.popen.pid, signal.SIGINT)
        wait_until(lambda: Worker.objects.filter(stopping=True).exists())
        began = time.monotonic()
        os.killpg(worker.popen.pid, signal.SIGINT)
        assert worker.wait() == 130
        assert time.monotonic() - began < 3
    assert run_jobs("--drain", PGJOBS_LEASE="1.5", PGJOBS_HEARTBEAT="0.5").wait() == 0
    wait_until(lambda: job.get().status != "reserved", seconds=10)


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


def test_handlers_that_ignore_everything_do_not_keep_it(run_jobs: Start) -> None:
    job = scripted.enqueue(steps=[["deaf", 3600]])
    worker = run_jobs("--grace", 0.5)
    wait_until(lambda: "start" in audit.events(job.id))
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < 6
    assert job.get().status == "pending"


def test_a_thread_that_a_handler_left_does_not_keep_it(run_jobs: Start) -> None:
    scripted.enqueue(steps=[["spawn", 3600]])
    assert run_jobs("--drain").wait() == 0


def test_it_stops_when_its_supervisor_is_killed(run_jobs: Start) -> None:
    """SIGKILL of the parent alone: its processes notice, and stop as on SIGTERM."""
    worker = run_jobs()
    job = scripted.enqueue(steps=[])
    wait_until(lambda: job.get().status == "done")
    children = Worker.objects.values_list("pid", flat=True).get()
    worker.send(signal.SIGKILL)
    wait_until(lambda: not _alive(children), "the end of the worker process")
    assert not Worker.objects.exists()


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def _may_unshare() -> bool:
    try:
        return subprocess.run(["unshare", "-pf", "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(sys.platform != "linux" or not _may_unshare(), reason="needs the right to make a PID namespace")
def test_as_pid_1(run_jobs: Start) -> None:
    """F135: without a shell or an init in between, as in a container. Orphans of handlers are reaped, too."""
    worker = run_jobs(wrap=("unshare", "-pf", "--mount-proc", "--kill-child"))
    worker.wait_ready()
    job = scripted.enqueue(steps=[["return", 1]])
    wait_until(lambda: job.get().status == "done")
    [inner] = subprocess.run(["pgrep", "-P", str(worker.popen.pid)], capture_output=True, text=True).stdout.split()
    os.kill(int(inner), signal.SIGTERM)
    assert worker.wait() == 0
    assert not Worker.objects.exists()
