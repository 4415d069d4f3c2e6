"""rerun: a wish becomes a new pending job, by whatever ends the holder of its key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction

from pgjobs import store
from pgjobs.models import Job, Rerun
from tests.factories import JobFactory, RerunFactory
from tests.rows import columns, held, history, lapse

pytestmark = pytest.mark.django_db


def rerun(kind: str = "scripted", key: str = "k") -> int | None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgjobs_rerun(%s, %s)", [kind, key])
        return cursor.fetchone()[0]  # type: ignore[no-any-return]


def last_attempt_lapses(job: store.ClaimedJob) -> None:
    Job.objects.update(max_attempts=1)
    lapse(job.id)
    store.reap(connection)


def released_for_the_last_time(job: store.ClaimedJob) -> None:
    Job.objects.update(max_attempts=1, refunds=5)
    store.release(connection, [job.id], [job.lease], started=True)


def cancelled_then(end: Callable[[store.ClaimedJob], Any]) -> Callable[[store.ClaimedJob], Any]:
    def ending(job: store.ClaimedJob) -> None:
        store.cancel(connection, [job.id])
        end(job)

    return ending


def by_hand(job: store.ClaimedJob) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET status = 'dead', finished_at = now(), lease = NULL, reserved_by = NULL,"
            " reserved_until = NULL WHERE id = %s",
            [job.id],
        )


ENDS: dict[str, Callable[[store.ClaimedJob], Any]] = {
    "finish": lambda j: store.finish_many(connection, [j.id], [j.lease], {}, {}),
    "bury": lambda j: store.bury(connection, j.id, j.lease, error="boom"),
    "fail": lambda j: store.fail(connection, j.id, j.lease, error="never"),
    "cancel_held": lambda j: store.cancel_held(connection, j.id, j.lease, reason="enough"),
    "reap": last_attempt_lapses,
    "release": released_for_the_last_time,
    "cancel, retry": cancelled_then(lambda j: store.retry(connection, j.id, j.lease, error="boom")),
    "cancel, snooze": cancelled_then(lambda j: store.snooze(connection, j.id, j.lease, until=9.0)),
    "cancel, lapse": cancelled_then(last_attempt_lapses),
    "deleted": lambda j: Job.objects.filter(pk=j.id).delete(),
    "by hand": by_hand,
}


@pytest.mark.parametrize("end", ENDS)
def test_whatever_ends_the_holder_makes_a_new_job_of_the_wish(end: str) -> None:
    """F26: nothing is swallowed."""
    holder = held(dedupe_key="k")
    wish = RerunFactory(
        dedupe_key="k",
        queue="q",
        payload={"n": 2},
        priority=5,
        max_attempts=3,
        timeout=None,
        meta={"m": 1},
        parent_id=7,
    )
    ENDS[end](holder)
    row = columns(Job.objects.get(status="pending").pk)
    assert row["id"] != holder.id
    wished = {
        "kind": "scripted", "dedupe_key": "k", "queue": "q", "payload": {"n": 2}, "priority": 5, "max_attempts": 3,
        "timeout": None, "meta": {"m": 1}, "parent_id": 7, "run_after": wish.run_after, "expires_at": None,
        "attempts": 0,
    }  # fmt: skip
    assert {name: row[name] for name in wished} == wished
    assert not Rerun.objects.exists()
    assert history(row["id"]) == []


@pytest.mark.parametrize(
    "end",
    [
        lambda j: store.retry(connection, j.id, j.lease, error="boom"),
        lambda j: store.snooze(connection, j.id, j.lease, until=60.0),
        lambda j: store.release(connection, [j.id], [j.lease], started=False),
    ],
)
def test_a_holder_that_goes_on_keeps_its_key_and_the_wish_waits(end: Callable[[store.ClaimedJob], Any]) -> None:
    holder = held(dedupe_key="k")
    RerunFactory(dedupe_key="k")
    end(holder)
    assert (Job.objects.get().pk, Rerun.objects.count()) == (holder.id, 1)
    store.cancel(connection, [holder.id])
    assert Job.objects.filter(status="pending").count() == 1


def test_a_holder_of_another_key_or_kind_does_not_count() -> None:
    holder = held(dedupe_key="k")
    RerunFactory(dedupe_key="K")
    RerunFactory(dedupe_key="k", kind="other")
    ENDS["finish"](holder)
    assert Rerun.objects.count() == 2
    assert not Job.objects.filter(status="pending").exists()


def test_it_answers_the_new_job_or_nothing() -> None:
    assert rerun() is None
    RerunFactory(dedupe_key="k")
    holder = JobFactory(dedupe_key="k")
    assert rerun() is None
    Job.objects.filter(pk=holder.pk).update(status="done", finished_at="2020-01-01T00:00Z")
    assert Job.objects.filter(status="pending").count() == 1
    assert rerun() is None


def test_the_wish_is_made_with_all_options_and_one_end_makes_one_job() -> None:
    holder = held(dedupe_key="k")
    with connection.cursor() as cursor:
        for n in (1, 2):
            cursor.execute(
                "SELECT pgjobs_enqueue('scripted', %s, p_dedupe_key => 'k', p_on_conflict => 'rerun',"
                " p_timeout => '7 s')",
                [f'{{"n": {n}}}'],
            )
    ENDS["finish"](holder)
    job = Job.objects.get(status="pending")
    assert (job.payload, job.timeout) == ({"n": 2}, dt.timedelta(seconds=7))


def test_a_wish_whose_holder_ended_in_the_same_transaction_is_granted_at_its_commit(transactional_db: None) -> None:
    holder = held(dedupe_key="k")
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT action FROM pgjobs_enqueue('scripted', p_dedupe_key => 'k', p_on_conflict => 'rerun')"
            )
            assert cursor.fetchone() == ("rerun",)
        ENDS["finish"](holder)
    assert Job.objects.filter(status="pending").count() == 1


def test_workers_are_told(heard: Callable[[], list[str]]) -> None:
    holder = held(dedupe_key="k")
    RerunFactory(dedupe_key="k", queue="q")
    heard()
    ENDS["finish"](holder)
    assert heard() == ["q"]
