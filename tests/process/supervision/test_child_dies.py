"""A worker process dies, in each way that one can: its jobs are due again at once, and no neighbour suffers."""

from __future__ import annotations

import time
from typing import Any

import pytest
from django.db import connection

from pgjobs.models import Job
from tests.testapp import audit
from tests.testapp.models import Audit
from tests.testapp.script import closed_gate
from tests.waiting import wait_until
from tests.worker_harness import Process

from .conftest import (
    Fleet,
    causes,
    children,
    events,
    gone,
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

DEFAULTS = {"PGJOBS_LEASE": "15", "PGJOBS_HEARTBEAT": "5"}


def test_a_killed_process_s_jobs_are_due_within_a_second(run_jobs: Fleet) -> None:
    """F6, at default settings: what ran counts as an attempt, what had only been claimed does not."""
    quick = [script(["return", 1]) for _ in range(30)]
    one = run_jobs("--threads", 1, env=DEFAULTS)
    for id_ in quick:
        wait_status(id_, "done")  # so that the worker has learned that jobs are quick, and prefetches
    with closed_gate() as open_gate:
        running = script(["gate", 1])
        waiting = [script(["return", 2]) for _ in range(5)]
        wait_event(running, "at gate")
        wait_until(lambda: Job.objects.filter(pk__in=waiting, status="reserved").exists(), "some to wait in the buffer")
        [child] = children(one.popen.pid)
        with measured("SIGKILL of a process until its jobs are due again", 1.0):
            kill(child)
            wait_until(lambda: not Job.objects.filter(reserved_by__contains=f":{child}:").exists(), "the undertaker")
        for id_ in waiting:
            wait_status(id_, "done")  # by the replacement, while the suspect waits for a process of its own
        open_gate()
        job = wait_status(running, "done")
    assert (job.attempts, len(events(running, "start"))) == (2, 2)
    assert causes(running) == [(1, "crashed", "worker died: SIGKILL (out of memory?)")]
    for id_ in waiting:
        assert Job.objects.get(pk=id_).attempts == 1, "never started: refunded"
        assert causes(id_) == []
    stop_well(one)


@pytest.mark.parametrize(
    ("steps", "cause"),
    [
        pytest.param([["os_exit", 7]], "worker died: exit code 7", marks=pytest.mark.slow),
        ([["segfault"]], "worker died: SIGSEGV"),
        pytest.param([["kill", "SIGKILL"]], "worker died: SIGKILL (out of memory?)", marks=pytest.mark.slow),
        pytest.param([["regex"]], "worker", marks=pytest.mark.slow),
        pytest.param([["kill", "SIGSTOP"]], "worker killed: its claim loop stood still", marks=pytest.mark.slow),
    ],
    ids=["os._exit", "segfault", "killed", "regular-expression", "stopped"],
)
def test_each_kind_of_death_has_its_cause_in_the_history(run_jobs: Fleet, steps: list[Any], cause: str) -> None:
    """F6, F41: the first attempt ends the process; the second one returns. Lease 3, so the watchdog bites after 2.4 s."""
    one = run_jobs("--threads", 2)
    id_ = script(*steps, then=[[["return", 1]]])
    job = wait_status(id_, "done")
    [(attempt, outcome, error)] = causes(id_)
    assert (attempt, outcome) == (1, "crashed")
    assert error.startswith(cause)
    start, again = events(id_, "start")
    print(f"{steps}: runs again {(again.at - start.at).total_seconds():.2f} s after it began ({error})")
    assert (job.attempts, again.pid != start.pid) == (2, True)
    stop_well(one)


@pytest.mark.slow
def test_a_poison_job_dies_alone(run_jobs: Fleet) -> None:
    """F13: each attempt kills the process. It ends dead after its own max_attempts, causes in its history; those that ran beside
    it are given back with the attempt refunded, run alone, and end well.
    """
    one = run_jobs("--threads", 4)
    with closed_gate() as open_gate:
        neighbours = [script(["gate", 1], ["sleep", 0.2]) for _ in range(3)]
        for id_ in neighbours:
            wait_event(id_, "at gate")
        poison = script(["kill", "SIGKILL"], max_attempts=3)
        wait_event(poison, "start")
        open_gate()
    later = [script(["return", 1]) for _ in range(20)]
    for id_ in [*neighbours, *later]:
        wait_status(id_, "done", 40)
    job = wait_status(poison, "dead", 40)
    assert job.attempts == 3
    crashed = causes(poison)
    assert [attempt for attempt, outcome, _ in crashed if outcome == "crashed"] == [1, 1, 2, 3]
    assert "one of 4 that ran" in crashed[0][2]
    assert len({a.pid for a in events(poison, "start")}) == 4, "four processes died of it"
    for id_ in neighbours:
        assert (Job.objects.get(pk=id_).attempts, len(events(id_, "start"))) == (1, 2)
        [(_, outcome, error)] = causes(id_)
        assert (outcome, "given back, to run alone" in error) == ("crashed", True)
    _suspects_ran_alone([poison, *neighbours])
    nothing_is_left()
    stop_well(one)


def test_a_long_suspect_does_not_hold_up_the_others(run_jobs: Fleet) -> None:
    """Each runs alone in a process of its own, and two such processes work at a time."""
    one = run_jobs("--threads", 4)
    with closed_gate(1) as open_gate:
        long = [script(["gate", 1])]
        wait_event(long[0], "at gate")
        with closed_gate(2):
            others = [script(["gate", 2]) for _ in range(3)]
            for id_ in others:
                wait_event(id_, "at gate")
            [child] = children(one.popen.pid)
            kill(child)
        with measured("three suspects beside one that waits", 6):
            wait_event(long[0], "at gate", 2)
            for id_ in others:
                wait_status(id_, "done")
        open_gate()
    wait_status(long[0], "done")
    _suspects_ran_alone([*long, *others])
    stop_well(one)


def _suspects_ran_alone(ids: list[int]) -> None:
    """From the second run of each on, its process ran nothing at the same time."""
    for id_ in ids:
        for start in events(id_, "start")[1:]:
            end = next((e for e in events(id_, "end") if e.pid == start.pid and e.id > start.id), None)
            during = Audit.objects.filter(pid=start.pid, event="start", id__gt=start.id)
            beside = during.filter(id__lt=end.id) if end else during
            assert not beside.exclude(job_id=id_).exists(), story()


def test_what_had_returned_is_finished_and_not_run_again(run_jobs: Fleet) -> None:
    """The database keeps the worker from recording it: somebody holds the row. Then the process is killed."""
    one = run_jobs("--threads", 1)
    with closed_gate() as open_gate, audit.connect() as holder:
        id_ = script(["gate", 1], ["return", 5])
        wait_event(id_, "at gate")
        with holder.transaction():
            holder.execute("SELECT 1 FROM pgjobs_job WHERE id = %s FOR UPDATE", [id_])
            open_gate()
            wait_event(id_, "end")
            _wait_tries_to_record()
            [child] = children(one.popen.pid)
            kill(child)
            wait_gone([child])
    job = wait_status(id_, "done")
    assert (job.attempts, len(events(id_, "start"))) == (1, 1)
    assert "result not stored: worker died" in (job.last_error or "")
    stop_well(one)


def test_what_had_raised_has_used_its_attempt(run_jobs: Fleet) -> None:
    """F13: it may be what kills the process. Given back as if it had not begun, it would kill one after the other for ever."""
    one = run_jobs("--threads", 1)
    with closed_gate() as open_gate, audit.connect() as holder:
        id_ = script(["gate", 1], ["raise"], then=[[["return", 1]]])
        wait_event(id_, "at gate")
        with holder.transaction():
            holder.execute("SELECT 1 FROM pgjobs_job WHERE id = %s FOR UPDATE", [id_])
            open_gate()
            wait_event(id_, "end")
            _wait_tries_to_record("pgjobs_retry")
            [child] = children(one.popen.pid)
            kill(child)
            wait_gone([child])
    job = wait_status(id_, "done")
    assert (job.attempts, len(events(id_, "start"))) == (2, 2)
    assert [outcome for _, outcome, _ in causes(id_)] == ["crashed"]
    stop_well(one)


def _wait_tries_to_record(function: str = "pgjobs_finish_many") -> None:
    """The completer has been told of the end, and is refused the row: two tries are proof enough."""
    seen: set[str] = set()

    def tried() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT query_start::text FROM pg_stat_activity WHERE application_name = 'pgjobs completer'"
                " AND query LIKE %s AND datname = current_database()",
                [f"%{function}%"],
            )
            seen.update(at for (at,) in cursor.fetchall())
        return len(seen) >= 2

    wait_until(tried, "two tries to record the finish")


@pytest.mark.slow
def test_a_process_that_dies_young_is_replaced_ever_more_slowly(run_jobs: Fleet) -> None:
    """The first death costs nothing; then the pauses grow."""
    one = run_jobs("--threads", 1)
    [child] = children(one.popen.pid)
    pauses = []
    for _ in range(3):
        kill(child)
        wait_gone([child])
        began = time.monotonic()
        child = wait_until(lambda: _worker(one), "a replacement")
        pauses.append(time.monotonic() - began)
    print("pauses before each replacement:", ", ".join(f"{pause:.2f} s" for pause in pauses))
    assert pauses[1] >= 0.9
    assert pauses[2] >= 1.8
    stop_well(one)


def _worker(one: Process) -> int | None:
    """The one child that is a worker: an undertaker is gone in a moment."""
    found = children(one.popen.pid)
    time.sleep(0.3)
    stayed = [child for child in found if not gone(child)]
    return stayed[0] if stayed else None


@pytest.mark.slow
def test_the_supervisor_survives_its_processes_all_night(run_jobs: Fleet) -> None:
    """Ten deaths, and it has as many children and descriptors as before."""
    one = run_jobs("--processes", 2, "--threads", 1)
    ids = [script(["os_exit", 1], max_attempts=1) for _ in range(5)]
    for id_ in ids:
        wait_status(id_, "dead", 60)
    good = script(["return", 1])
    wait_status(good, "done", 40)
    wait_until(lambda: len(children(one.popen.pid)) == 2, "two processes again", 40)
    assert not gone(one.popen.pid)
    stop_well(one)
