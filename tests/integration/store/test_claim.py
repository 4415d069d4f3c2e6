"""claim: pending → reserved."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Job
from tests.factories import JobFactory, PauseFactory
from tests.integration.store.conftest import Hold
from tests.rows import LEASE_FIELDS, age, changes, claim, columns, database_now, lapse, nothing_changes

pytestmark = pytest.mark.django_db


def ids(**options: Any) -> list[int]:
    return [job.id for job in claim(**{"limit": 100} | options)]


def test_a_claimed_job_is_reserved_and_its_attempt_counts() -> None:
    job = JobFactory(payload={"a": 1}, meta={"m": 1}, timeout=dt.timedelta(seconds=45), max_attempts=4)
    before = database_now()
    with changes(job.pk) as changed:
        [claimed] = claim(worker="w-7", lease=15)
    after = database_now()
    now = changed["reserved_at"]
    assert before <= now <= after
    assert changed.pop("lease") == claimed.lease > 0
    assert changed == {
        "status": "reserved", "attempts": 1, "reserved_by": "w-7", "worker": "w-7", "worker_ids": ["w-7"],
        "reserved_at": now, "last_attempted_at": now, "started_at": now,
        "reserved_until": now + dt.timedelta(seconds=15),
    }  # fmt: skip
    assert claimed[:8] == (job.pk, claimed.lease, "scripted", "default", '{"a": 1}', 1, 4, 45.0)
    assert claimed.meta == {"m": 1}
    assert claimed.scheduled_for is None
    assert (claimed.lost, 0 <= claimed.waited < 60) == (0, True)


def test_a_second_attempt_keeps_the_first_start() -> None:
    job = JobFactory(retrying=True, run_after=timezone.now() - dt.timedelta(seconds=1), lost=2)
    with changes(job.pk) as changed:
        [claimed] = claim(worker="w-2")
    assert set(changed) == LEASE_FIELDS | {"status", "attempts", "worker", "worker_ids", "last_attempted_at"}
    assert (changed["attempts"], changed["worker_ids"]) == (2, ["w-1", "w-2"])
    assert claimed.lost == 2
    assert columns(job.pk)["last_error"] == "boom"  # until the attempt ends


def test_each_claim_draws_a_new_lease_for_all_its_rows() -> None:
    JobFactory.create_batch(4)
    first, second = claim(2), claim(2)
    assert len({job.lease for job in first}) == len({job.lease for job in second}) == 1
    assert first[0].lease != second[0].lease
    assert 0 <= first[0].lease < 2**63


def test_leases_are_random_not_counted() -> None:
    """A sequence that was not flushed repeats after a crash; a name or an epoch that starts at 1 collides (F1)."""
    JobFactory.create_batch(30)
    leases = [claim(1)[0].lease for _ in range(30)]
    assert len(set(leases)) == 30
    assert leases != sorted(leases)
    assert max(leases) > 2**58


@pytest.mark.parametrize(
    ("timeout", "seconds"), [(dt.timedelta(seconds=7), 7), (dt.timedelta(minutes=5), 300), (None, 3600)]
)
def test_without_a_lease_a_job_is_held_for_its_own_timeout(timeout: dt.timedelta | None, seconds: int) -> None:
    job = JobFactory(timeout=timeout)
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, lease FROM pgjobs_claim(p_limit => 1, p_worker => 'go')")
        assert cursor.fetchone()[0] == job.pk
    row = columns(job.pk)
    assert row["reserved_until"] - row["reserved_at"] == dt.timedelta(seconds=seconds)


def test_workers_of_the_latest_32_attempts_are_kept() -> None:
    job = JobFactory()
    for n in range(40):
        claim(worker=f"w-{n}")
        lapse(job.pk)
        store.reap(connection)
        age(job.pk, 1e6, "run_after")
        Job.objects.update(max_attempts=100)
    assert columns(job.pk)["worker_ids"] == [f"w-{n}" for n in range(8, 40)]


# Which, and in what order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", ["abc", "abcdefghij", "a" * 40 + "bcdefghij"], ids=["few", "many", "uneven"])
def test_highest_priority_first_then_run_after_then_id_across_queues(queues: str) -> None:
    """F116"""
    now = timezone.now() - dt.timedelta(minutes=1)
    jobs = [
        JobFactory(
            queue=random.choice(queues),
            priority=random.choice([-100, 0, 3, 100]),
            run_after=now - dt.timedelta(seconds=random.randrange(3)),
        )
        for _ in range(120)
    ]
    order = [j.pk for j in sorted(jobs, key=lambda j: (-j.priority, j.run_after, j.pk))]
    assert ids(limit=25) == order[:25]
    assert ids(limit=1) == order[25:26]
    assert ids(limit=3) == order[26:29]
    assert ids(limit=200) == order[29:]


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_never_more_than_the_limit_whatever_the_planner_does(limit: int) -> None:
    """F19"""
    JobFactory.create_batch(20, history=False)
    for switches in (
        ("hashjoin", "mergejoin", "hashagg"),
        ("nestloop", "indexscan", "tidscan"),
        ("material", "memoize"),
    ):
        with transaction.atomic(), connection.cursor() as cursor:
            for name in switches:
                cursor.execute(f"SET LOCAL enable_{name} = off")
            assert len(claim(limit)) == limit
            transaction.set_rollback(True)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_takes_nothing(limit: int) -> None:
    JobFactory()
    with nothing_changes():
        assert claim(limit) == []


def test_a_worker_has_to_have_a_name() -> None:
    with pytest.raises(DatabaseError, match="p_worker has to name the worker"), transaction.atomic():
        claim(worker="")


def test_only_jobs_that_are_due() -> None:
    """F23"""
    JobFactory(scheduled=True, priority=100)
    JobFactory(retrying=True, priority=100)
    due = JobFactory(priority=-100)
    assert ids() == [due.pk]


@pytest.mark.parametrize("trait", ["reserved", "lapsed", "done", "failed", "dead", "cancelled", "expired"])
def test_only_pending_jobs_that_have_not_expired(trait: str) -> None:
    """F153: an expired job never runs, also before the keeper has written that it expired."""
    JobFactory(**{trait: True})
    with nothing_changes():
        assert ids() == []


def test_a_job_that_expires_later_is_claimed() -> None:
    job = JobFactory(expires_at=timezone.now() + dt.timedelta(hours=1))
    assert ids() == [job.pk]


def test_only_the_queues_and_kinds_that_were_named() -> None:
    a, b, c = (JobFactory(queue=queue, kind=kind) for queue, kind in [("a", "x"), ("b", "y"), ("c", "x")])
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({}, [a.pk, b.pk, c.pk]),
        ({"queues": ["a", "c"]}, [a.pk, c.pk]),
        ({"queues": ["c", "a", "a"]}, [a.pk, c.pk]),
        ({"queues": []}, []),
        ({"queues": ["A", "a%", ""]}, []),
        ({"exclude_queues": ["a"]}, [b.pk, c.pk]),
        ({"queues": ["a", "b"], "exclude_queues": ["a"]}, [b.pk]),
        ({"kinds": ["x"]}, [a.pk, c.pk]),
        ({"kinds": ["x", "y"], "queues": ["b"]}, [b.pk]),
        ({"kinds": []}, []),
    ]
    for options, expected in cases:
        with transaction.atomic():
            assert ids(**options) == expected, options
            transaction.set_rollback(True)


def test_a_kind_that_is_not_known_here_does_not_stand_in_the_way() -> None:
    """F126: it is left alone for a worker that knows it."""
    unknown = JobFactory(kind="unknown", priority=100)
    known = JobFactory()
    with changes(unknown.pk) as changed:
        assert ids(limit=1, kinds=["scripted"]) == [known.pk]
    assert changed == {}


@pytest.mark.parametrize("scope", ["queue", "kind"])
def test_nothing_that_is_paused(scope: str) -> None:
    """F152"""
    other = JobFactory(queue="other", kind="other")
    paused = JobFactory(priority=100)
    pause = PauseFactory(scope=scope, name={"queue": "default", "kind": "scripted"}[scope])
    with transaction.atomic():
        assert ids() == [other.pk]
        transaction.set_rollback(True)
    pause.until = timezone.now() + dt.timedelta(hours=1)
    pause.save()
    with transaction.atomic():
        assert ids(queues=["default", "other"]) == [other.pk]
        transaction.set_rollback(True)
    pause.until = timezone.now() - dt.timedelta(minutes=1)  # it ends by itself
    pause.save()
    assert ids() == [paused.pk, other.pk]


def test_a_name_of_the_other_scope_is_not_paused() -> None:
    job = JobFactory(queue="scripted", kind="default")
    PauseFactory(scope="queue", name="default")
    PauseFactory(scope="kind", name="scripted")
    assert ids() == [job.pk]


# Rows of others -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queues", [1, 3])
def test_rows_that_others_hold_are_passed_over(queues: int, hold_row: Hold) -> None:
    jobs = [JobFactory(queue="abc"[n % queues]) for n in range(9)]
    for job in (jobs[0], jobs[1], jobs[4]):
        hold_row(job.pk, "FOR UPDATE")
    hold_row(jobs[2].pk, "FOR KEY SHARE")
    assert ids(limit=4) == [jobs[n].pk for n in (2, 3, 5, 6)]
    assert ids(limit=4) == [jobs[n].pk for n in (7, 8)]


def test_no_lock_stays_on_rows_that_are_not_taken(connect: Any, transactional_db: None) -> None:
    jobs = [JobFactory(queue="ab"[n % 2], kind="xy"[n % 2]) for n in range(10)]
    with transaction.atomic():
        taken = ids(limit=3, kinds=["x"])
        free = connect().execute("SELECT id FROM pgjobs_job ORDER BY id FOR UPDATE SKIP LOCKED").fetchall()
    assert taken == [jobs[n].pk for n in (0, 2, 4)]
    assert [id_ for (id_,) in free] == [j.pk for j in jobs if j.pk not in taken]


def test_the_lease_counts_from_the_end_of_the_search_not_from_the_start_of_the_transaction() -> None:
    """F93"""
    job = JobFactory()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.02)")
    before = database_now()
    claim(lease=15)
    assert columns(job.pk)["reserved_until"] >= before + dt.timedelta(seconds=15)
