"""Signals, and what becomes of everything when the supervisor, or all of it, is gone."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time

import pytest

from pgjobs.models import Job
from tests.conftest import Connect
from tests.testapp import audit
from tests.testapp.models import Audit
from tests.testapp.script import closed_gate
from tests.waiting import wait_until

from .conftest import (
    Fleet,
    causes,
    children,
    events,
    kill,
    measured,
    nothing_is_left,
    script,
    stop_well,
    story,
    wait_event,
    wait_gone,
    wait_status,
)


@pytest.mark.parametrize(
    ("number", "whom"),
    [
        (signal.SIGTERM, "supervisor"),
        (signal.SIGINT, "group"),
        pytest.param(signal.SIGINT, "supervisor", marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, "group", marks=pytest.mark.slow),
    ],
)
def test_a_signal_lets_what_runs_come_to_its_end(run_jobs: Fleet, number: int, whom: str) -> None:
    """Claimed but not started: given back. A terminal's Ctrl-C reaches the whole process group, and means the same."""
    one = run_jobs("--threads", 1, "--processes", 2)
    with closed_gate() as open_gate:
        running = [script(["gate", 1]) for _ in range(2)]
        for id_ in running:
            wait_event(id_, "at gate")
        pending = script(["return", 1])
        if whom == "group":
            os.killpg(one.popen.pid, number)
        else:
            kill(one.popen.pid, number)
        time.sleep(0.5)  # nothing happens, which no event tells
        assert one.popen.poll() is None
        assert Job.objects.filter(pk__in=running, status="reserved").count() == 2
        open_gate()
        with measured("from the end of the last handler to the exit", 5):
            assert one.wait() == 0, one.output
    assert {Job.objects.get(pk=id_).status for id_ in running} == {"done"}
    assert Job.objects.get(pk=pending).status == "pending"
    assert Job.objects.get(pk=pending).attempts == 0


def test_what_outlasts_grace_is_given_back_with_its_attempt(run_jobs: Fleet) -> None:
    """F16: a deploy is no failure."""
    one = run_jobs("--threads", 2, "--grace", 1)
    ids = [script(["sleep", 60], then=[[]]) for _ in range(2)]
    for id_ in ids:
        wait_event(id_, "start")
    with measured("SIGTERM with a grace of 1 s", 1 + 5):
        stop_well(one)
    for id_ in ids:
        job = Job.objects.get(pk=id_)
        assert (job.status, job.attempts, job.refunds) == ("pending", 0, 1)
        [(attempt, outcome, error)] = causes(id_)
        assert (attempt, outcome) == (1, "interrupted")
        assert error.startswith("interrupted")


def test_what_could_not_be_given_back_in_time_is_given_back_by_the_undertaker(run_jobs: Fleet) -> None:
    """F18: a job that waits in the buffer, and whose row somebody holds until its process is gone."""
    one = run_jobs("--threads", 1, "--grace", 0, env={"PGJOBS_LEASE": "60"})
    for id_ in [script(["return", 1]) for _ in range(30)]:
        wait_status(id_, "done")  # so that the worker has learned that jobs are quick, and prefetches
    with closed_gate() as open_gate, audit.connect() as holder:
        running, waiting = script(["gate", 1]), script(["return", 2])
        wait_event(running, "at gate")
        wait_status(waiting, "reserved")
        [child] = children(one.popen.pid)
        with holder.transaction():
            holder.execute("SELECT 1 FROM pgjobs_job WHERE id = %s FOR UPDATE", [waiting])
            kill(one.popen.pid, signal.SIGTERM)
            open_gate()
            wait_status(running, "done")
            wait_gone([child])
        assert one.wait() == 75, one.output
    job = Job.objects.get(pk=waiting)
    assert (job.status, job.attempts, causes(waiting)) == ("pending", 0, [])


def test_what_outlasts_grace_runs_elsewhere_only_when_its_process_is_gone(run_jobs: Fleet) -> None:
    """Another worker waits for it, and takes it at once; the first process must not live beside it, not for a moment."""
    ids = [script(["look_for_others"], ["sleep", 60], then=[[["look_for_others"]]]) for _ in range(4)]
    one = run_jobs("--threads", 4, "--grace", 0.3)
    for id_ in ids:
        wait_event(id_, "start")
    other = run_jobs("--threads", 4)
    stop_well(one)
    for id_ in ids:
        assert wait_event(id_, "saw alive", 2).data == []
    stop_well(other)


def test_the_second_signal_ends_it_at_once(run_jobs: Fleet) -> None:
    """F58: and its undertakers still give back what ran."""
    one = run_jobs("--threads", 1, "--grace", 60)
    id_ = script(["sleep", 60], then=[[]])
    wait_event(id_, "start")
    kill(one.popen.pid, signal.SIGINT)
    wait_until(lambda: Job.objects.get(pk=id_).status == "reserved", "it to go on")
    with measured("the second SIGINT", 3):
        code = one.stop(signal.SIGINT)
    assert code == 128 + signal.SIGINT
    assert Job.objects.get(pk=id_).status == "pending"


def test_children_of_a_killed_supervisor_stop_by_themselves(run_jobs: Fleet) -> None:
    """They see the end of a pipe, and behave as on SIGTERM."""
    one = run_jobs("--threads", 1, "--processes", 2, "--grace", 1)
    quick, slow = script(["gate", 7]), script(["sleep", 60], then=[[]])
    wait_event(slow, "start")
    wait_status(quick, "done")
    orphans = children(one.popen.pid)
    with measured("SIGKILL of the supervisor until its processes have stopped (grace 1 s)", 1 + 5):
        kill(one.popen.pid)
        wait_gone(orphans)
    job = Job.objects.get(pk=slow)
    assert (job.status, job.attempts, job.refunds) == ("pending", 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "supervisor killed"])
def test_a_handler_that_freezes_its_process_while_it_stops(run_jobs: Fleet, number: int) -> None:
    """The watchdog is awake until the last handler has ended: the process is gone before its lease lapses, and long before
    GRACE is over. Without a supervisor it is the reaper of another worker that finds what ran.
    """
    one = run_jobs("--threads", 1, "--grace", 60)
    id_ = script(["gate", 1], ["regex"], then=[[["return", 1]]])
    with closed_gate() as open_gate:
        wait_event(id_, "at gate")
        [child] = children(one.popen.pid)
        kill(one.popen.pid, number)
        one.wait_for("pgjobs stops" if number == signal.SIGTERM else "its supervisor is gone")
        with measured("frozen while it stops, until its process is gone (lease 3 s, watchdog 2.4 s)", 3):
            open_gate()
            wait_gone([child])
    one.wait()
    other = run_jobs("--threads", 1)
    wait_status(id_, "done")
    [(_, outcome, _)] = causes(id_)
    assert outcome == ("crashed" if number == signal.SIGTERM else "lost")
    stop_well(other)


@pytest.mark.slow
def test_a_handler_that_freezes_its_process_while_it_gives_back(run_jobs: Fleet, connect: Connect) -> None:
    """The same, while the process still tries to give back what it has not started (somebody holds the rows)."""
    one = run_jobs("--threads", 1, "--grace", 60)
    [child] = children(one.popen.pid)
    # So that it learns how quick they are, and holds more than one.
    for id_ in [script(["return", 1]) for _ in range(40)]:
        wait_status(id_, "done")
    frozen = script(["gate", 1], ["regex"], then=[[["return", 1]]])
    with closed_gate() as open_gate:
        wait_event(frozen, "at gate")
        waiting = [script(["return", 1]) for _ in range(3)]
        wait_until(
            lambda: Job.objects.filter(pk__in=waiting, status="reserved").exists(), "some to be held, not started"
        )
        holder = connect(autocommit=False)
        holder.execute("SELECT id FROM pgjobs_job WHERE id = ANY (%s) FOR UPDATE", [waiting])
        kill(one.popen.pid)
        one.wait_for("its supervisor is gone")
        with measured("frozen while it gives back, until its process is gone (lease 3 s, watchdog 2.4 s)", 3):
            open_gate()
            wait_gone([child])
    holder.rollback()
    one.wait()
    other = run_jobs("--threads", 1)
    for id_ in (frozen, *waiting):
        wait_status(id_, "done")
    stop_well(other)


def test_it_ends_in_time_though_nobody_reads_what_it_writes(run_jobs: Fleet) -> None:
    """F58: a terminal after Ctrl-S, or a log collector that hangs: every write waits for ever, and only the alarm is left."""
    reader, writer = os.pipe()
    try:
        one = run_jobs("--threads", 1, "--grace", 1, stdout=writer, ready=False)
        id_ = script(["sleep", 60])
        wait_event(id_, "start")
        started = children(one.popen.pid)
        os.set_blocking(writer, False)
        for size in (1000, 1):
            with contextlib.suppress(BlockingIOError):
                while True:
                    os.write(writer, b"x" * size)
        os.set_blocking(writer, True)
        with measured("SIGTERM with a grace of 1 s, and a full pipe", 1 + 5):
            assert one.stop(signal.SIGTERM) == 75
        wait_gone(started, 1)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("by", ["another", pytest.param("a restarted one", marks=pytest.mark.slow)])
def test_a_killed_tree_s_jobs_run_elsewhere_within_lease_and_beat(run_jobs: Fleet, by: str) -> None:
    """F6, F7. At lease 3 and heartbeat 1; at default settings it is 15 and 5. A worker that is restarted at once is there
    before the lease has lapsed, and finds the jobs all the same.
    """
    if by == "another":
        other = run_jobs("--threads", 2, "--exclude-queue", "first")
    one = run_jobs("--threads", 2, "--queue", "second", "--queue", "first")
    with closed_gate() as open_gate:
        ids = [script(["gate", 1], queue="first") for _ in range(2)]
        for id_ in ids:
            wait_event(id_, "at gate")
        Job.objects.filter(pk__in=ids).update(queue="default")  # from now on the other one's
        start = 5 if by == "a restarted one" else 0  # seconds, on a busy machine
        with measured(f"SIGKILL of a whole tree until its jobs run on {by}", 3 + 1 + 1 + start) as so_far:
            one.kill_group()
            if by == "a restarted one":
                other = run_jobs("--threads", 2)
                print(f"it was ready after {so_far():.2f} s")
            for id_ in ids:
                wait_event(id_, "at gate", 2)
        open_gate()
    for id_ in ids:
        assert wait_status(id_, "done").attempts == 2
        [(_, outcome, error)] = causes(id_)
        assert (outcome, error.startswith("Lost worker ")) == ("lost", True)
    stop_well(other)


@pytest.mark.slow
def test_rolling_deploys_under_load_burn_no_attempt(run_jobs: Fleet) -> None:
    """F16, F18: five deploys, each starting the new one before the old one is gone; jobs of all lengths around them."""
    ids = [script(["sleep", 0.02]) for _ in range(400)]
    ids += [script(["sleep", 2.5]) for _ in range(4)]  # longer than the grace: refunded each time
    one = run_jobs("--threads", 4, "--grace", 1)
    for _ in range(4):
        ids += [script(["sleep", 0.02]) for _ in range(60)]
        pids = children(one.popen.pid)
        wait_until(Audit.objects.filter(pid__in=pids, event="start").exists, "it to work")
        new = run_jobs("--threads", 4, "--grace", 1)
        stop_well(one)
        one = new
    wait_until(lambda: not Job.objects.exclude(status="done").exists(), "the end", 60)
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert set(Job.objects.values_list("status", flat=True)) == {"done"}
    outcomes = {outcome for id_ in ids for _, outcome, _ in causes(id_)}
    assert outcomes <= {"interrupted"}
    twice = [id_ for id_ in ids if len(events(id_, "start")) != 1 + len(causes(id_))]
    assert not twice, story(twice[0])
    nothing_is_left()
    stop_well(one)


@pytest.mark.slow
def test_refunds_of_a_running_job_end_with_the_fifth(run_jobs: Fleet) -> None:
    """F16: a pill must not hide behind deploys: a job that no deploy lets come to its end uses up its attempts at last."""
    id_ = script(["sleep", 60], max_attempts=1)
    for n in range(6):
        one = run_jobs("--threads", 1, "--grace", 0.1)
        wait_event(id_, "start", n + 1)
        stop_well(one)
    job = Job.objects.get(pk=id_)
    assert (job.status, job.attempts, job.refunds) == ("dead", 1, 5)


def _namespaces() -> list[str]:
    """A command that makes what follows PID 1 of a namespace of its own; skips where that is not permitted."""
    command = ["unshare", "-pf", "--mount-proc"]
    if not shutil.which("unshare") or subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs to make a PID namespace (unshare -pf --mount-proc), which is not permitted here")
    return command


def test_as_pid_1_of_a_container(run_jobs: Fleet) -> None:
    """F135: orphans of others are buried too, a child's death is seen, and SIGTERM stops it."""
    wrap = _namespaces()
    one = run_jobs("--threads", 2, wrap=tuple(wrap))
    [pid1] = wait_until(lambda: children(one.popen.pid), "the supervisor")
    died = script(["kill", "SIGKILL"], then=[[["return", 1]]])
    assert wait_status(died, "done").attempts == 2
    assert all(a.pid < 1000 for a in events(died, "start")), "numbers of the namespace"
    slow = script(["sleep", 60], then=[[]])
    wait_event(slow, "start")
    with measured("SIGTERM to PID 1 (grace 10 s)", 10 + 5):
        kill(pid1, signal.SIGINT)
        kill(pid1, signal.SIGTERM)
        one.wait()
    wait_gone([pid1])
    assert Job.objects.get(pk=slow).status == "pending"


def test_under_nohup_a_hangup_is_ignored(run_jobs: Fleet) -> None:
    """Who starts it so wants it to outlive the terminal."""
    one = run_jobs(wrap=("nohup",))
    first = script(["return", 1])
    wait_status(first, "done")
    kill(one.popen.pid, signal.SIGHUP)
    kill(children(one.popen.pid)[0], signal.SIGHUP)
    wait_status(script(["return", 2]), "done")
    stop_well(one)
