"""archive: final → the archive, with the same columns."""

from __future__ import annotations

import pytest
from django.db import connection

from pgjobs.models import ArchivedJob, Attempt, Job
from tests.factories import FINAL_TRAITS, JobFactory
from tests.integration.store.test_prune import ended
from tests.rows import columns, nothing_changes

pytestmark = pytest.mark.django_db


def archive(status: str, age: str = "7 days", batch: int = 1000) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgjobs_archive(%s, %s::interval, %s)", [status, age, batch])
        return int(cursor.fetchone()[0])


@pytest.mark.parametrize("trait", FINAL_TRAITS)
def test_a_row_moves_as_it_is_and_its_history_stays(trait: str) -> None:
    job = ended(trait, 8, dedupe_key="k", meta={"m": 1}, snoozes=3, parent_id=2**40)
    young = ended(trait, 6)
    before, told = columns(job.pk), Attempt.objects.count()
    assert archive(trait) == 1
    assert Job.objects.get().pk == young.pk
    [after] = ArchivedJob.objects.values()
    assert after.pop("archived_at") is not None
    assert after == before
    assert Attempt.objects.count() == told


def test_every_column_of_a_job_is_one_of_the_archive() -> None:
    """Also those of later releases."""
    names = [{f.column for f in model._meta.concrete_fields} for model in (Job, ArchivedJob)]
    assert names[1] - names[0] == {"archived_at"}
    assert names[0] <= names[1]


def test_the_oldest_first_at_most_a_batch() -> None:
    jobs = [ended("done", days) for days in (10, 30, 20)]
    assert archive("done", batch=2) == 2
    assert Job.objects.get().pk == jobs[0].pk


@pytest.mark.parametrize("status", ["pending", "reserved"])
def test_only_final_statuses(status: str) -> None:
    JobFactory()
    JobFactory(reserved=True)
    with nothing_changes():
        assert archive(status, "0") == 0
