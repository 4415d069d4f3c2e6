"""prune: final → gone; by ids, and by age (prune_old)."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Attempt, Job
from tests.factories import FINAL_TRAITS, AttemptFactory, JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import nothing_changes

pytestmark = pytest.mark.django_db

WEEK = dt.timedelta(days=7)


def prune_old(status: str, age: dt.timedelta, **options: int) -> int:
    return store.prune_old(connection, {status: age}, **options)[status]


def ended(trait: str, days: float, **more: object) -> Job:
    job = JobFactory(**{trait: True}, created_at=timezone.now() - dt.timedelta(days=90), **more)
    Job.objects.filter(pk=job.pk).update(finished_at=timezone.now() - dt.timedelta(days=days))
    return job


@pytest.mark.parametrize("trait", FINAL_TRAITS)
def test_an_ended_job_goes_with_its_history(trait: str) -> None:
    job, other = JobFactory(**{trait: True}), JobFactory(dead=True)
    AttemptFactory(job=job)
    kept = Attempt.objects.filter(job=other).count()
    assert store.prune(connection, [job.pk]) == {job.pk: "pruned"}
    assert Job.objects.get() == other
    assert Attempt.objects.count() == kept == 2


@pytest.mark.parametrize("trait", [None, "scheduled", "retrying", "reserved", "lapsed"])
def test_a_live_job_stays(trait: str | None) -> None:
    """F141"""
    job = JobFactory(**{trait: True} if trait else {})
    with nothing_changes():
        assert store.prune(connection, [job.pk, 10**12]) == {job.pk: "not_final", 10**12: "missing"}


@pytest.mark.parametrize("how", ["FOR UPDATE", "FOR KEY SHARE"])
def test_rows_that_others_hold_are_told_as_busy(how: str, hold_row: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.store.operating.PATIENCE", 0)
    held_row, free = JobFactory(done=True), JobFactory(done=True)
    hold_row(held_row.pk, how)
    assert store.prune(connection, [held_row.pk, free.pk]) == {held_row.pk: "busy", free.pk: "pruned"}
    assert prune_old("done", dt.timedelta(0)) == 0


@pytest.mark.parametrize("status", FINAL_TRAITS)
def test_by_age_of_the_end_and_by_status(status: str) -> None:
    """F70: not by the age of the row."""
    ended(status, 6.9)
    ended(status, 7.1)
    for other in set(FINAL_TRAITS) - {status}:
        ended(other, 100)
    JobFactory(scheduled=True, created_at=timezone.now() - dt.timedelta(days=90))
    assert prune_old(status, WEEK) == 1
    assert Job.objects.count() == 5
    assert prune_old(status, dt.timedelta(0)) == 1


@pytest.mark.parametrize("status", ["pending", "reserved", "nonsense"])
def test_only_final_statuses(status: str) -> None:
    JobFactory(created_at=timezone.now() - dt.timedelta(days=90))
    JobFactory(reserved=True)
    with nothing_changes():
        assert prune_old(status, dt.timedelta(0)) == 0


def test_the_oldest_first_at_most_a_batch_and_with_its_history() -> None:
    """F69"""
    jobs = [ended("dead", days) for days in (10, 30, 20)]
    assert prune_old("dead", WEEK, batch=2) == 2
    assert Job.objects.get().pk == jobs[0].pk
    assert set(Attempt.objects.values_list("job_id", flat=True)) == {jobs[0].pk}
    assert [prune_old("dead", WEEK, batch=2) for _ in range(2)] == [1, 0]


def test_several_statuses_by_one_statement(django_assert_num_queries: Any) -> None:
    ended("done", 10)
    ended("dead", 10)
    ended("dead", 10)
    with django_assert_num_queries(1):
        assert store.prune_old(connection, {"done": WEEK, "dead": WEEK, "failed": WEEK}) == {
            "done": 1,
            "dead": 2,
            "failed": 0,
        }
    with django_assert_num_queries(0):
        assert store.prune_old(connection, {}) == {}
