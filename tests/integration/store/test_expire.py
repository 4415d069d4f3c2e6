"""expire: pending past expires_at → cancelled."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Job
from tests.factories import JobFactory, RerunFactory
from tests.integration.store.conftest import Hold
from tests.rows import changes, nothing_changes

pytestmark = pytest.mark.django_db


def test_an_expired_job_is_cancelled() -> None:
    """F153"""
    job = JobFactory(retrying=True, expires_at=timezone.now() - dt.timedelta(seconds=10))
    with changes(job.pk) as changed:
        assert store.expire(connection) == 1
    assert changed.pop("finished_at") is not None
    assert changed == {"status": "cancelled", "last_error": "expired", "error_class": None}


@pytest.mark.parametrize("trait", [None, "reserved", "lapsed", "done", "dead", "cancelled"])
def test_only_pending_jobs_whose_time_is_over(trait: str | None) -> None:
    """A job that runs is not stopped by the end of its time."""
    past, future = timezone.now() - dt.timedelta(hours=1), timezone.now() + dt.timedelta(hours=1)
    JobFactory(**{trait: True} if trait else {}, expires_at=past if trait else future)
    JobFactory()
    with nothing_changes():
        assert store.expire(connection) == 0


def test_at_most_a_batch_the_earliest_first() -> None:
    jobs = [JobFactory(expires_at=timezone.now() - dt.timedelta(minutes=n)) for n in (1, 3, 2)]
    assert store.expire(connection, batch=2) == 2
    assert Job.objects.get(status="pending").pk == jobs[0].pk
    assert [store.expire(connection, batch=2), store.expire(connection)] == [1, 0]


def test_rows_that_others_hold_are_passed_over(hold_row: Hold) -> None:
    first, second = JobFactory(expired=True), JobFactory(expired=True)
    hold_row(first.pk)
    assert store.expire(connection) == 1
    assert Job.objects.get(status="cancelled").pk == second.pk


def test_a_wish_to_run_again_is_granted() -> None:
    JobFactory(expired=True, dedupe_key="k")
    RerunFactory(dedupe_key="k", payload={"n": 2})
    store.expire(connection)
    assert Job.objects.get(status="pending").payload == {"n": 2}
