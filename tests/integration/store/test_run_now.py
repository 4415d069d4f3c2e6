"""run_now: → pending: a job of a schedule outside its ticks."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection

from pgjobs import store
from pgjobs.models import Job, Schedule, Tick
from pgjobs.store import NewJob
from tests.rows import claim

pytestmark = pytest.mark.django_db

NEW = NewJob("add", '{"a": 1}', "sums", 7, 3, 45.0, meta='{"m": 1}')
NOW = dt.datetime(2026, 12, 1, 12, 30, 1, 5, tzinfo=dt.UTC)
SINCE = dt.datetime(2026, 12, 1, tzinfo=dt.UTC)


@pytest.fixture
def schedule() -> Schedule:
    made = Schedule.objects.create(name="nightly", kind="add", cron="0 3 * * *", timezone="UTC")
    made.refresh_from_db()
    return made


def run_now(schedule: Schedule, **options: Any) -> tuple[int, bool]:
    return store.run_now(connection, schedule.pk, NEW, scheduled_for=NOW, **options)


def finish(ok: bool = True) -> None:
    [held] = claim()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgjobs_finish(%s, %s, %s, 'boom')", (held.id, held.lease, ok))


def test_a_job_of_the_schedule_which_is_left_alone(schedule: Schedule) -> None:
    before = Schedule.objects.values().get()
    first, created = run_now(schedule)
    job = Job.objects.get(pk=first)
    assert created
    assert (job.kind, job.payload, job.queue, job.priority, job.max_attempts, job.timeout, job.meta) == (
        "add", {"a": 1}, "sums", 7, 3, dt.timedelta(seconds=45), {"m": 1},
    )  # fmt: skip
    assert (job.schedule_id, job.dedupe_key) == (schedule.pk, None)
    assert job.scheduled_for == NOW
    assert run_now(schedule) == (first + 1, True)
    assert Schedule.objects.values().get() == before
    assert not Tick.objects.exists()


@pytest.mark.parametrize("ended", ["pending", "reserved", "done", "dead"])
def test_a_key_counts_once_whatever_became_of_its_job(schedule: Schedule, ended: str) -> None:
    first, created = run_now(schedule, key="k", since=SINCE)
    assert created
    if ended == "reserved":
        claim()
    elif ended == "done":
        finish()
    elif ended == "dead":
        Job.objects.update(max_attempts=1)
        finish(ok=False)
    assert Job.objects.get().status == ended
    assert run_now(schedule, key="k", since=SINCE) == (first, False)
    assert Job.objects.count() == 1


def test_another_key_another_tick_another_schedule(schedule: Schedule) -> None:
    other = Schedule.objects.create(name="other", kind="add", cron="0 4 * * *", timezone="UTC")
    assert run_now(schedule, key="k", since=SINCE)[1]
    assert run_now(schedule, key="l", since=SINCE)[1]
    assert run_now(schedule, key="k", since=SINCE + dt.timedelta(days=1))[1]
    assert run_now(other, key="k", since=SINCE)[1]
    assert run_now(schedule)[1]
    assert Job.objects.count() == 5


def test_a_job_that_ended_may_be_gone(schedule: Schedule) -> None:
    """What the retention removed is forgotten: a key holds as long as finished jobs are kept."""
    first, _ = run_now(schedule, key="k", since=SINCE)
    finish()
    store.prune(connection, [first])
    assert run_now(schedule, key="k", since=SINCE)[1]
