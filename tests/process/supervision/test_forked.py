"""A handler forks (multiprocessing, for example): the copy is no worker, and cannot hurt the one it comes from."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from django.db import connection

from tests.testapp.jobs import scripted_async, scripted_atomic
from tests.testapp.models import Note
from tests.testapp.script import closed_gate
from tests.waiting import wait_until

from .conftest import Fleet, children, kill, script, status, stop_well, wait_event, wait_status


def test_it_ends_on_sigterm(run_jobs: Fleet) -> None:
    """As multiprocessing ends its own: a Pool would wait for ever."""
    one = run_jobs()
    id_ = script(["fork", "sleep"], ["end_fork"])
    assert wait_status(id_, "done").result == -15
    stop_well(one)


def test_it_does_not_speak_on_our_connections(run_jobs: Fleet) -> None:
    one = run_jobs()
    ids = [script(["fork", "note"], max_attempts=1) for _ in range(3)]
    assert [wait_status(id_, "done").result for id_ in ids] == [0, 0, 0]
    assert Note.objects.filter(text="forked").count() == 3
    stop_well(one)


@pytest.mark.parametrize("handler", ["plain", "atomic", "async"])
def test_it_ends_with_its_handler(run_jobs: Fleet, handler: str) -> None:
    """Only the worker itself records how the job ended, and goes on to the next."""
    one = run_jobs()
    steps = [["fork", "return"]]
    if handler == "plain":
        id_ = script(*steps)
    else:
        id_ = (scripted_atomic if handler == "atomic" else scripted_async).enqueue(steps=steps).id
    job = wait_status(id_, "done")
    assert (job.attempts, job.result) == (1, 0)
    [child] = children(one.popen.pid)
    assert children(child) == []
    stop_well(one)


def test_it_keeps_no_session_of_a_dead_worker_alive(run_jobs: Fleet) -> None:
    """An open transaction of the dead would keep its locks as long as the copy lives."""
    one = run_jobs("--threads", 1)
    with closed_gate() as open_gate, contextlib.ExitStack() as end:
        id_ = scripted_atomic.enqueue(steps=[["note", "once"], ["fork", "sleep"], ["gate", 1]]).id
        wait_event(id_, "at gate")
        [worker] = children(one.popen.pid)
        [copy] = children_of_all_threads(worker)
        end.callback(kill, copy)
        kill(worker)
        wait_until(lambda: sessions_in_a_transaction() == 0, "the server to notice")
        open_gate()
        wait_until(lambda: status(id_) == "done", "the second attempt")
    stop_well(one)


def children_of_all_threads(pid: int) -> list[int]:
    """A thread's own children are listed under it."""
    return [int(c) for task in Path(f"/proc/{pid}/task").iterdir() for c in (task / "children").read_text().split()]


def sessions_in_a_transaction() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        )
        return int(cursor.fetchone()[0])
