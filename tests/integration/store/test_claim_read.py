"""claim goes on where the last one stopped, when it is told where that was."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs import store
from tests.factories import JobFactory, PauseFactory
from tests.rows import age

pytestmark = pytest.mark.django_db


def claim(limit: int = 10, read: str | None = None, **options: Any) -> store.Claim:
    known: dict[str, Any] = {"queues": None, "exclude_queues": (), "kinds": None}
    return store.claim(connection, limit, "w-1", lease=15, read=read, **known | options)


def ago(seconds: float) -> dt.datetime:
    return timezone.now() - dt.timedelta(seconds=seconds)


def ids(claim: store.Claim) -> list[int]:
    return [job.id for job in claim.jobs]


def test_what_lies_behind_waits_for_a_sweep() -> None:
    """F66"""
    first, second = JobFactory(run_after=ago(60)), JobFactory(run_after=ago(30))
    one = claim(1)
    assert (ids(one), one.swept) == ([first.pk], True)
    behind = JobFactory(run_after=ago(90))
    two = claim(1, one.read)
    assert (ids(two), two.swept) == ([second.pk], False)
    three = claim(1, two.read)
    assert ids(three) == []
    assert ids(claim(1)) == [behind.pk]


def test_a_new_queue_or_priority_is_seen_at_once() -> None:
    """Only within a queue and a priority is there anything behind."""
    JobFactory.create_batch(2, queue="m", priority=0, run_after=ago(60))
    read = claim(1).read
    expected = []
    for queue, priority in [("m", 50), ("m", -50), ("a", 0), ("z", 0), ("a", 7), ("z", -7)]:
        expected.append((JobFactory(queue=queue, priority=priority, run_after=ago(90)).pk, priority))
    seen = claim(100, read)
    assert not seen.swept
    assert [i for i in ids(seen) if i in dict(expected)] == [i for i, _ in sorted(expected, key=lambda one: -one[1])]
    assert len(seen.jobs) == 7


def test_rows_of_one_moment_are_read_one_by_one() -> None:
    """The place is a time and an id: a statement that enqueues thousands gives them all one time."""
    when = ago(60)
    jobs = [JobFactory(run_after=when).pk for _ in range(7)]
    read, got = None, []
    for _ in range(4):
        one = claim(2, read)
        read, got = one.read, got + ids(one)
    assert got == jobs


def test_a_late_commit_of_a_moment_ago_is_not_behind() -> None:
    JobFactory(run_after=ago(60))
    read = claim().read
    late = JobFactory(run_after=ago(0.05))
    assert ids(claim(10, read)) == [late.pk]


def test_a_mountain_of_strangers_is_walked_once() -> None:
    """F64: jobs that this worker cannot run, before those that it can."""
    JobFactory.create_batch(30, kind="stranger", priority=100, run_after=ago(60))
    mine = JobFactory(kind="mine", run_after=ago(60))
    one = claim(1, kinds=["mine"])
    assert ids(one) == [mine.pk]
    levels = {level: at for _, level, at, _ in json.loads(one.read or "")["levels"]}
    assert dt.datetime.fromisoformat(levels[100]) > ago(30), "the strangers lie behind"
    mine = JobFactory(kind="mine", run_after=timezone.now() - dt.timedelta(milliseconds=20))
    two = claim(1, one.read, kinds=["mine"])
    assert (ids(two), two.swept) == ([mine.pk], False)


def test_several_queues_of_one_priority_are_merged_and_each_has_its_place() -> None:
    for n in range(6):
        JobFactory(queue=f"q{n % 3}", run_after=ago(60 - n))
    expected = [job.pk for job in sorted(store_jobs(), key=lambda job: job.run_after)]
    read, got = None, []
    for _ in range(3):
        one = claim(2, read)
        read, got = one.read, got + ids(one)
    assert got == expected


def store_jobs() -> list[Any]:
    from pgjobs.models import Job

    return list(Job.objects.all())


def test_another_set_of_pauses_means_a_sweep() -> None:
    JobFactory(kind="paused", run_after=ago(60))
    pause = PauseFactory(scope="kind", name="paused")
    read = claim().read
    assert not claim(10, read).swept
    pause.delete()
    again = claim(10, read)
    assert (again.swept, len(again.jobs)) == (True, 1)


def test_a_clock_that_was_set_back_means_a_sweep() -> None:
    job = JobFactory(run_after=ago(60))
    known = json.loads(claim(10, None, kinds=["none"]).read or "")
    known["at"] = (timezone.now() + dt.timedelta(minutes=1)).isoformat()
    assert ids(claim(10, json.dumps(known))) == [job.pk]


def test_a_requeued_and_a_released_job_are_not_behind() -> None:
    job = JobFactory(run_after=ago(60))
    one = claim(10)
    store.release(connection, ids(one), [one.jobs[0].lease], started=False)
    assert ids(claim(10, one.read)) == [job.pk]


def test_a_queue_of_others_is_looked_at_once() -> None:
    """Its beginning may be a mountain too."""
    JobFactory(queue="theirs", run_after=ago(60))
    JobFactory(queue="ours", run_after=ago(60))
    one = claim(10, exclude_queues=["theirs"])
    two = claim(10, one.read, exclude_queues=["theirs"])
    assert {q for q, *_ in json.loads(two.read or "")["levels"]} == {"ours", "theirs"}
    assert (len(one.jobs), len(two.jobs), two.due) == (1, 0, None)


def test_with_too_many_levels_nothing_is_remembered() -> None:
    for n in range(6):
        JobFactory.create_batch(90, queue=f"q{n}", run_after=ago(60))
    job = JobFactory(run_after=ago(60))
    age(job.pk, 1, "run_after")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_job SET queue = queue || id")
    one = claim(10)
    assert json.loads(one.read or "")["levels"] is None
    assert len(claim(1000, one.read).jobs) == 531
