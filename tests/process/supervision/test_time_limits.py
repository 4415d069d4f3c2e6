"""A job's timeout bounds its run, whatever the handler does; never its neighbour, never the next job (F110, F111, F112)."""

from __future__ import annotations

import asyncio
import socket
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from pgjobs.conf import Settings
from pgjobs.models import Job
from tests.testapp.models import Audit
from tests.waiting import wait_until

from .conftest import (
    Fleet,
    causes,
    children,
    events,
    measured,
    nothing_is_left,
    script,
    stop_well,
    wait_event,
    wait_status,
)

GRACE = {"PGJOBS_TIMEOUT_GRACE": "0.5"}


@pytest.mark.parametrize(
    "steps",
    [
        [["spin"]],
        pytest.param([["pg_sleep"]], marks=pytest.mark.slow),
        pytest.param([["sleep", 1.2]], marks=pytest.mark.slow),
    ],
    ids=["busy loop", "slow query", "a sleep that ends within the grace"],
)
def test_what_can_be_stopped_is(run_jobs: Fleet, steps: list[Any]) -> None:
    """The attempt is recorded as timed out, the thread goes on with the next job, and the process stays."""
    one = run_jobs("--threads", 1, env={"PGJOBS_TIMEOUT_GRACE": "3"})
    before = children(one.popen.pid)
    id_ = script(*steps, then=[[["return", 1]]], timeout=0.3)
    behind = script(["return", 2])
    start = wait_event(id_, "start")
    job = wait_status(id_, "done")
    print(f"{steps}: again after {(events(id_, 'start')[1].at - start.at).total_seconds():.2f} s")
    assert job.attempts == 2
    [(attempt, outcome, error)] = causes(id_)
    assert (attempt, outcome) == (1, "timeout")
    assert error.startswith("timed out: it ran longer than its 0.3 s")
    assert wait_status(behind, "done").attempts == 1
    assert children(one.popen.pid) == before
    stop_well(one)


@pytest.mark.slow
def test_one_that_swallows_it_and_returns_is_done(run_jobs: Fleet) -> None:
    """Told to stop, it came to its end within the grace: its work is done, and is not done again."""
    one = run_jobs("--threads", 1, env={"PGJOBS_TIMEOUT_GRACE": "3"})
    id_ = script(["deaf", 0.8], ["return", 1], timeout=0.3)
    assert wait_status(id_, "done").attempts == 1
    assert causes(id_) == []
    stop_well(one)


def test_a_slow_query_is_gone_from_the_server(run_jobs: Fleet) -> None:
    one = run_jobs("--threads", 1)
    id_ = script(["pg_sleep"], timeout=0.5, max_attempts=1)
    wait_event(id_, "start")
    wait_status(id_, "dead")
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE state = 'active' AND query LIKE '%pg_sleep(%' AND pid <> pg_backend_pid()"
        )
        assert cursor.fetchone() == (0,)
    stop_well(one)


@pytest.mark.parametrize(
    "steps",
    [
        [["sleep", 60]],
        pytest.param([["block"]], marks=pytest.mark.slow),
        pytest.param([["pbkdf2"]], marks=pytest.mark.slow),
        pytest.param([["deaf"]], marks=pytest.mark.slow),
    ],
    ids=["sleep", "lock.acquire", "C code", "except BaseException: continue"],
)
def test_what_cannot_be_stopped_costs_its_process(run_jobs: Fleet, steps: list[Any]) -> None:
    """F110: the attempt is recorded within its limit and grace; a new process takes over at once; the neighbour ends well."""
    one = run_jobs("--threads", 2, env=GRACE)
    neighbour = script(["sleep", 4])
    wait_event(neighbour, "start")
    id_ = script(*steps, timeout=0.5, max_attempts=1)
    with measured("a limit of 0.5 s and a grace of 0.5 s, until the end is recorded", 0.5 + 0.5 + 1.5):
        wait_event(id_, "start")
        wait_status(id_, "dead")
    with measured("until the capacity is back", 4):
        later = [script(["sleep", 0.1]) for _ in range(4)]
        for n in later:
            wait_status(n, "done")
    assert Job.objects.get(pk=neighbour).status in ("reserved", "done")
    assert {a.pid for n in later for a in events(n, "start")}.isdisjoint({events(id_, "start")[0].pid})
    assert wait_status(neighbour, "done").attempts == 1, "never the neighbour"
    [(_, outcome, error)] = causes(id_)
    assert (outcome, error) == ("timeout", "timed out: it ran longer than its 0.5 s, and does not stop")
    stuck = events(id_, "start")[0].pid
    wait_until(lambda: stuck not in children(one.popen.pid), "the end of the process with the stuck thread")
    nothing_is_left()
    stop_well(one)


@pytest.mark.slow
def test_a_regular_expression_is_ended_by_the_watchdog(run_jobs: Fleet) -> None:
    """No thread of the process gets a turn; at lease 3 its watchdog bites after 2.4 s, before the lease lapses."""
    one = run_jobs("--threads", 2)
    beside = script(["sleep", 5])
    wait_event(beside, "start")
    id_ = script(["regex"], max_attempts=1)
    start = wait_event(id_, "start")
    job = wait_status(id_, "dead")
    assert job.finished_at is not None
    print(f"dead {(job.finished_at - start.at).total_seconds():.2f} s after its (second) start")
    outcomes = [outcome for _, outcome, _ in causes(id_)]
    assert outcomes == ["crashed", "crashed"], "first among the suspects, then alone"
    assert wait_status(beside, "done").attempts in (1, 2)
    stop_well(one)


def test_a_handler_that_says_nothing_of_time_has_a_limit(run_jobs: Fleet) -> None:
    """F111: a call that hangs must not stop a queue for ever, though its lease is kept. ``timeout=None`` is said, or there is a
    limit: five minutes, shortened here.
    """
    one = run_jobs("--threads", 1, env=GRACE)
    with override_settings(PGJOBS={"TIMEOUT": 1}):
        hangs = script(["block"], max_attempts=1)
    assert Job.objects.get(pk=hangs).timeout == timedelta(seconds=1)
    assert Settings().TIMEOUT == 300
    unlimited = script(["return", 2], timeout=None)
    assert Job.objects.get(pk=unlimited).timeout is None
    behind = script(["return", 1])
    with measured("a limit of 1 s by default and a grace of 0.5 s, until the job behind it is done", 1 + 0.5 + 4):
        wait_event(hangs, "start")
        wait_status(behind, "done")
    assert wait_status(hangs, "dead").attempts == 1
    assert [outcome for _, outcome, _ in causes(hangs)] == ["timeout"]
    stop_well(one)


@pytest.mark.slow
def test_an_own_timeout_error_is_an_ordinary_failure(run_jobs: Fleet) -> None:
    """F112: that of a socket, of asyncio, of whatever; and so is what the handler's own statement_timeout raises."""
    one = run_jobs("--threads", 1)
    id_ = script(["raise", "TimeoutError", "of a socket"], max_attempts=1, timeout=30)
    job = wait_status(id_, "dead")
    assert (job.error_class, job.last_error) == ("TimeoutError", "TimeoutError: of a socket")
    [(_, outcome, _)] = causes(id_)
    assert outcome == "error"
    assert socket.timeout is asyncio.TimeoutError is TimeoutError, "one class for all of them"
    query = script(["sql", "SET statement_timeout = '50ms'"], ["pg_sleep", 5], max_attempts=1, timeout=30)
    job = wait_status(query, "dead")
    assert job.error_class == "django.db.utils.OperationalError"
    assert [outcome for _, outcome, _ in causes(query)] == ["error"]
    stop_well(one)


@pytest.mark.parametrize("times", [20, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(300)])])
def test_an_interruption_hits_only_whom_it_is_meant_for(run_jobs: Fleet, times: int) -> None:
    """Jobs that end right at their limit, each followed by others on the same thread: whatever is raised, a job without a
    limit never fails, and each run of the others ended in exactly one way.
    """
    one = run_jobs("--threads", 2, env={"PGJOBS_LEASE": "15", "PGJOBS_HEARTBEAT": "5"})
    limited, free = [], []
    for n in range(times):
        limited.append(script(["spin", 0.06 + 0.08 * (n % 10) / 10], timeout=0.1, max_attempts=1))
        free += [script(["return", 1], timeout=None) for _ in range(6)]
    wait_until(lambda: not Job.objects.filter(status__in=("pending", "reserved")).exists(), "the end", 200)
    assert set(Job.objects.filter(pk__in=free).values_list("status", "attempts")) == {("done", 1)}
    outcomes = dict.fromkeys(("done", "dead"), 0)
    for id_ in limited:
        job = Job.objects.get(pk=id_)
        outcomes[job.status] += 1
        assert job.attempts == 1
        assert len(events(id_, "start")) == 1
        assert [outcome for _, outcome, _ in causes(id_)] == (["timeout"] if job.status == "dead" else [])
    print(f"{len(limited)} jobs around their limit: {outcomes}; {len(free)} between them: all done")
    assert len({a.pid for a in Audit.objects.filter(event="start")}) == 1, "no process was lost for it"
    stop_well(one)


@pytest.mark.slow
def test_a_stuck_job_does_not_keep_a_stopping_worker(run_jobs: Fleet) -> None:
    one = run_jobs("--threads", 1, "--grace", 2, env=GRACE)
    id_ = script(["sleep", 60], timeout=0.3, max_attempts=1)
    wait_event(id_, "start")
    began = time.monotonic()
    stop_well(one)
    print(f"stopped after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < 2 + 5
    assert Job.objects.get(pk=id_).status in ("dead", "pending")
