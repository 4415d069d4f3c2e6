"""snooze: reserved → pending later, the attempt given back."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs import store
from tests.factories import JobFactory
from tests.rows import NO_LEASE, age, changes, claim, columns, database_now, held, history

pytestmark = pytest.mark.django_db


def test_a_snoozed_job_waits_and_has_its_attempt_back() -> None:
    job = held(attempts=2, worker_ids=["a", "b"], last_error="boom", error_class="x.Y", lost=1, history=False)
    until = timezone.now() + dt.timedelta(hours=1)
    with changes(job.id) as changed:
        assert store.snooze(connection, job.id, job.lease, until=until, reason="not yet") == "pending"
    assert changed == NO_LEASE | {
        "status": "pending", "run_after": until, "attempts": 2, "snoozes": 1, "worker_ids": ["a", "b"], "lost": 0,
        "last_error": "not yet", "error_class": None,
    }  # fmt: skip
    assert history(job.id) == []


def test_seconds_count_from_now_by_the_clock_of_the_database() -> None:
    job = held()
    before = database_now()
    store.snooze(connection, job.id, job.lease, until=60.0)
    row = columns(job.id)
    assert before <= row["run_after"] - dt.timedelta(minutes=1) <= database_now()
    assert row["last_error"] is None


def test_snoozes_do_not_eat_attempts() -> None:
    """F107"""
    job = JobFactory(max_attempts=3)
    for _ in range(30):
        [claimed] = claim()
        assert store.snooze(connection, claimed.id, claimed.lease, until=0.0) == "pending"
        age(job.pk, 1, "run_after")
    [claimed] = claim()
    store.finish_many(connection, [claimed.id], [claimed.lease], {}, {})
    row = columns(job.pk)
    assert (row["status"], row["attempts"], row["snoozes"], row["worker_ids"]) == ("done", 1, 30, ["w-1"])


def test_the_counter_stops_where_its_column_ends() -> None:
    """F81"""
    job = held(snoozes=32767)
    assert store.snooze(connection, job.id, job.lease, until=0.0) == "pending"
    assert columns(job.id)["snoozes"] == 32767
