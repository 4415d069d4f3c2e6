"""retry: reserved → pending later."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection

from pgjobs import store
from tests.rows import NO_LEASE, changes, columns, database_now, held, history

pytestmark = pytest.mark.django_db


def test_a_failed_job_waits_from_now_and_has_a_row_of_history() -> None:
    job = held(lost=1)
    reserved = columns(job.id)
    before = database_now()
    with changes(job.id) as changed:
        answer = store.retry(
            connection, job.id, job.lease, error="boom", error_class="x.Y", traceback="Traceback", delay=60, log="said"
        )
    after = database_now()
    assert answer == "pending"
    run_after = changed.pop("run_after")
    assert before <= run_after - dt.timedelta(minutes=1) <= after
    assert changed == NO_LEASE | {"status": "pending", "last_error": "boom", "error_class": "x.Y", "lost": 0}
    [row] = history(job.id)
    assert before <= row.pop("finished_at") <= after
    assert row == {
        "attempt": 1, "outcome": "error", "error_class": "x.Y", "error": "boom", "traceback": "Traceback",
        "worker": "w-1", "started_at": reserved["last_attempted_at"], "log": "said",
    }  # fmt: skip


def test_without_a_delay_it_is_the_formula() -> None:
    job = held(attempts=2, history=False)
    before = database_now()
    store.retry(connection, job.id, job.lease, error="boom")
    assert dt.timedelta(seconds=40) <= columns(job.id)["run_after"] - before <= dt.timedelta(seconds=42)


def test_a_delay_of_nothing_is_at_once() -> None:
    job = held()
    store.retry(connection, job.id, job.lease, error="boom", delay=0, outcome="timeout")
    assert columns(job.id)["run_after"] <= database_now()
    assert [row["outcome"] for row in history(job.id)] == ["timeout"]


def test_it_does_not_ask_whether_attempts_are_left() -> None:
    """That is the caller's: pgjobs_finish and the executor bury the last one."""
    job = held(max_attempts=1)
    assert store.retry(connection, job.id, job.lease, error="boom", delay=0) == "pending"
