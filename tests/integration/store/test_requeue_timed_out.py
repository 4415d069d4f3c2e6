"""requeue_timed_out: reap, for workers in any language that do not beat."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection

from pgjobs.models import Job
from tests.factories import JobFactory, RerunFactory
from tests.rows import changes, columns, database_now, history

pytestmark = pytest.mark.django_db


def requeue_timed_out(arguments: str = "") -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pgjobs_requeue_timed_out({arguments})")
        return int(cursor.fetchone()[0])


def test_each_returned_job_waits_its_backoff_also_the_first_time() -> None:
    job = JobFactory(lapsed=True)
    now = database_now()
    with changes(job.pk) as changed:
        assert requeue_timed_out() == 1
    assert (changed["status"], changed["last_error"]) == ("pending", "Requeued after timeout")
    assert dt.timedelta(seconds=10) <= changed["run_after"] - now <= dt.timedelta(seconds=12)
    assert [row["outcome"] for row in history(job.pk)] == ["lost"]


def test_without_attempts_left_it_is_dead() -> None:
    job = JobFactory(lapsed=True, max_attempts=1)
    JobFactory(reserved=True)
    assert requeue_timed_out() == 1
    assert (columns(job.pk)["status"], columns(job.pk)["last_error"]) == ("dead", "Timeout exceeded")


def test_at_most_a_batch() -> None:
    JobFactory.create_batch(3, lapsed=True)
    assert [requeue_timed_out("p_batch => 2"), requeue_timed_out("2"), requeue_timed_out()] == [2, 1, 0]


def test_wishes_left_over_are_granted() -> None:
    RerunFactory(dedupe_key="k")
    Job.objects.all().delete()
    assert requeue_timed_out() == 0
    assert Job.objects.get().dedupe_key == "k"
