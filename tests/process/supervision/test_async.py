"""Coroutines: how many at once, what they leave behind, one that blocks the loop, and their connections."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection

from pgjobs import enqueue_many
from pgjobs.models import Job
from tests.testapp.jobs import scripted_async
from tests.testapp.models import Audit
from tests.waiting import wait_until

from .conftest import (
    Fleet,
    causes,
    children,
    events,
    nothing_is_left,
    script,
    stop_well,
    wait_event,
    wait_status,
)


def coroutine(*steps: list[Any], then: list[Any] | None = None, **options: Any) -> int:
    handler = scripted_async.using(**options)
    return handler.enqueue(steps=list(steps), **({} if then is None else {"then": then})).id


def test_so_many_run_at_once_and_no_more(run_jobs: Fleet) -> None:
    """And beside them the threads have their own places."""
    one = run_jobs("--threads", 1, env={"PGJOBS_ASYNC_CONCURRENCY": "5"})
    ids = [coroutine(["sleep", 0.3]) for _ in range(20)]
    thread = script(["return", 1])
    wait_status(thread, "done", 3)
    for id_ in ids:
        wait_status(id_, "done")
    at_once = most = 0
    for audit in Audit.objects.filter(job_id__in=ids, event__in=("start", "end")).order_by("id"):
        at_once += 1 if audit.event == "start" else -1
        most = max(most, at_once)
    print(f"20 coroutines, 5 at once allowed: {most} at once")
    assert most == 5
    stop_well(one)


@pytest.mark.parametrize(
    "steps",
    [[["forever"]], pytest.param([["deaf", 1]], marks=pytest.mark.slow)],
    ids=["awaits for ever", "blocks for a moment"],
)
def test_a_time_limit(run_jobs: Fleet, steps: list[Any]) -> None:
    one = run_jobs("--threads", 1, env={"PGJOBS_TIMEOUT_GRACE": "2"})
    id_ = coroutine(["sleep", 0], *steps, ["sleep", 60], then=[[["return", 1]]], timeout=0.4)
    beside = coroutine(["sleep", 2])
    assert wait_status(id_, "done").attempts == 2
    assert [outcome for _, outcome, _ in causes(id_)] == ["timeout"]
    assert wait_status(beside, "done").attempts == 1, "never the neighbour"
    stop_well(one)


@pytest.mark.slow
def test_one_that_blocks_the_loop_costs_the_process(run_jobs: Fleet) -> None:
    """Its attempt is recorded, a new process takes over; what else was on the loop is stuck with it, and runs again."""
    one = run_jobs("--threads", 1, env={"PGJOBS_TIMEOUT_GRACE": "0.5"})
    beside = coroutine(["sleep", 1.5], timeout=20)
    wait_event(beside, "start")
    id_ = coroutine(["deaf", 4], timeout=0.3, max_attempts=1)
    wait_event(id_, "start")
    wait_status(id_, "dead")
    pid = events(id_, "start")[0].pid
    later = coroutine(["return", 1])
    wait_status(later, "done")
    assert events(later, "start")[0].pid != pid
    wait_status(beside, "done")
    wait_until(lambda: pid not in children(one.popen.pid), "the end of the process whose loop was blocked")
    nothing_is_left()
    stop_well(one)


@pytest.mark.slow
def test_connections_stay_few_over_a_thousand_jobs(run_jobs: Fleet) -> None:
    """F52, F133: coroutines that use the ORM share a connection; nothing grows."""
    one = run_jobs("--threads", 2, env={"PGJOBS_ASYNC_CONCURRENCY": "50"})
    enqueue_many([scripted_async.prepare(steps=[["note", "x"]]) for _ in range(1000)])
    most = 0

    def done() -> bool:
        nonlocal most
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            most = max(most, cursor.fetchone()[0])
        return not Job.objects.exclude(status="done").exists()

    wait_until(done, "the end", 90)
    # Ours and the audit's; claimer, completer, keeper, listener; two threads, and the loop's one.
    print(f"1,000 coroutines with a query each: {most} connections at most")
    assert most <= 2 + 4 + 1 + 3
    stop_well(one)


def test_stray_tasks_end_with_their_job(run_jobs: Fleet) -> None:
    """F133: what a handler leaves on the loop."""
    one = run_jobs("--threads", 1)
    id_ = coroutine(["stray"], ["return", 1])
    wait_status(id_, "done")
    wait_event(id_, "stray cancelled")
    stop_well(one)
