"""enqueue_many: an answer for each, in the order given."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.db import DatabaseError, connection, transaction
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Job, Rerun
from tests.factories import JobFactory
from tests.integration.store.test_enqueue import new
from tests.rows import columns, held

SAME = {"id", "created_at", "updated_at", "run_after"}


@pytest.mark.django_db
@pytest.mark.parametrize("key", [None, "k"])
def test_a_row_is_the_one_that_enqueue_stores(key: str | None) -> None:
    soon = timezone.now() + dt.timedelta(hours=1)
    for fields in (
        {},
        {"timeout": None},
        {"timeout": 0.25, "queue": 'q"\\u0041', "priority": -100, "payload": '{"a":"\\\\u0000","ü":[1.5,null]}'},
        {"max_attempts": 1},
        {"run_after": soon, "expires_at": soon, "meta": '{"m": {}}'},
    ):  # fmt: skip
        one = new(dedupe_key=key and f"{key}{len(fields)}", **fields)
        [(many_id, created, action)] = store.enqueue_many(connection, [one], parent_id=7)
        assert (created, action) == (True, "created")
        many = columns(many_id)
        Job.objects.all().delete()
        alone = columns(store.enqueue(connection, one, parent_id=7)[0])
        assert {n: v for n, v in many.items() if n not in SAME} == {n: v for n, v in alone.items() if n not in SAME}
        assert abs(many["run_after"] - alone["run_after"]) < dt.timedelta(seconds=5)
        Job.objects.all().delete()


@pytest.mark.django_db
def test_answers_come_in_the_order_given_whatever_has_a_key() -> None:
    jobs = [new(payload=f'{{"n": {n}}}', dedupe_key=f"k{100 - n}" if n % 3 else None) for n in range(100)]
    answers = store.enqueue_many(connection, jobs)
    assert [columns(id_)["payload"]["n"] for id_, _, _ in answers] == list(range(100))
    plain = [id_ for n, (id_, _, _) in enumerate(answers) if n % 3 == 0]
    assert plain == sorted(plain), "rows without a key are numbered in the order given"


@pytest.mark.django_db
def test_duplicates_of_others_and_within_the_call_get_their_holder() -> None:
    """F33"""
    holder, running = JobFactory(dedupe_key="a"), held(dedupe_key="r")
    answers = store.enqueue_many(
        connection,
        [
            new(dedupe_key="a"),
            new(dedupe_key="b"),
            new(),
            new(dedupe_key="b"),
            new(dedupe_key="r", on_conflict="rerun", payload='{"again": 1}'),
            new(dedupe_key="a", on_conflict="replace", payload='{"new": 1}'),
        ],
    )
    assert [(created, action) for _, created, action in answers] == [
        (False, "kept"), (True, "created"), (True, "created"), (False, "kept"), (False, "rerun"), (False, "replaced"),
    ]  # fmt: skip
    assert answers[0][0] == answers[5][0] == holder.pk
    assert answers[1][0] == answers[3][0]
    assert answers[4][0] == running.id
    assert columns(holder.pk)["payload"] == {"new": 1}
    assert Rerun.objects.get().payload == {"again": 1}


@pytest.mark.django_db
def test_seconds_count_from_the_call_by_the_clock_of_the_database() -> None:
    ids = [
        id_ for id_, _, _ in store.enqueue_many(connection, [new(run_after=60.0), new(run_after=60.0, dedupe_key="k")])
    ]
    for id_ in ids:
        row = columns(id_)
        assert abs(row["run_after"] - row["created_at"] - dt.timedelta(minutes=1)) < dt.timedelta(seconds=1)


@pytest.mark.django_db
def test_none_and_all_or_none() -> None:
    assert store.enqueue_many(connection, []) == []
    with pytest.raises(DatabaseError), transaction.atomic():
        store.enqueue_many(connection, [new(), new(priority=101)])
    assert not Job.objects.exists()


def test_one_notification_a_queue(heard: Callable[[], list[str]]) -> None:
    """F45"""
    store.enqueue_many(connection, [new(queue="ab"[n % 2], dedupe_key=None if n % 5 else f"k{n}") for n in range(2000)])
    assert sorted(heard()) == ["a", "b"]
    store.enqueue_many(connection, [new(), new(dedupe_key="x")], notify=False)
    assert heard() == []
