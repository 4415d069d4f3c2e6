"""enqueue: → pending; or what is done about the holder of the dedupe key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Job, Rerun
from pgjobs.store import NewJob
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import changes, claim, columns, database_now, held, nothing_changes


def new(**fields: Any) -> NewJob:
    defaults: dict[str, Any] = {
        "kind": "scripted",
        "payload": "{}",
        "queue": "default",
        "priority": 0,
        "max_attempts": 10,
        "timeout": 300.0,
    }
    return NewJob(**defaults | fields)


def enqueue(**fields: Any) -> tuple[int, bool, str]:
    return store.enqueue(connection, new(**fields))


def call(sql: str, *params: object) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT id, created, action FROM pgjobs_enqueue({sql})", params)  # noqa: S608
        return cursor.fetchone()


@pytest.mark.django_db
def test_a_new_job_is_pending_and_has_what_was_given() -> None:
    run_after, expires_at = timezone.now() + dt.timedelta(hours=1), timezone.now() + dt.timedelta(hours=2)
    id_, created, action = store.enqueue(
        connection,
        new(
            payload='{"a": [1, "\u00fc"]}', queue="mail", priority=-3, max_attempts=4, timeout=1.5, run_after=run_after,
            dedupe_key="k", expires_at=expires_at, meta='{"tenant": 5}',
        ),
        parent_id=2**40,
    )  # fmt: skip
    assert (created, action) == (True, "created")
    row = columns(id_)
    given = {
        "kind": "scripted", "payload": {"a": [1, "ü"]}, "queue": "mail", "priority": -3, "max_attempts": 4,
        "timeout": dt.timedelta(seconds=1.5), "run_after": run_after, "dedupe_key": "k", "expires_at": expires_at,
        "meta": {"tenant": 5}, "parent_id": 2**40,
    }  # fmt: skip
    assert {name: row[name] for name in given} == given
    assert (row["status"], row["attempts"], row["refunds"], row["snoozes"], row["lost"]) == ("pending", 0, 0, 0, 0)
    assert row["worker_ids"] == []
    empty = {
        "lease", "reserved_by", "reserved_at", "reserved_until", "worker", "last_error", "error_class", "result",
        "progress", "cancel_requested_at", "schedule_id", "scheduled_for", "started_at", "last_attempted_at",
        "finished_at",
    }  # fmt: skip
    assert {name for name in row if row[name] is None} == empty


@pytest.mark.django_db
def test_null_means_the_default_of_the_table_but_for_the_timeout() -> None:
    by_hand = JobFactory()
    by_hand.refresh_from_db()
    id_, _, _ = call("'scripted', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL")
    job = Job.objects.get(pk=id_)
    for name in ("payload", "queue", "priority", "max_attempts", "dedupe_key", "expires_at", "meta"):
        assert getattr(job, name) == getattr(by_hand, name)
    assert job.timeout is None
    assert Job.objects.get(pk=call("'scripted'")[0]).timeout == by_hand.timeout == dt.timedelta(minutes=5)


@pytest.mark.django_db
def test_a_job_is_due_at_once_or_after_seconds_by_the_clock_of_the_database_not_of_the_transaction() -> None:
    """F93: the transaction of a test began long ago."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(0.02)")
    before = database_now()
    now, later = columns(enqueue()[0]), columns(enqueue(run_after=3600.0)[0])
    after = database_now()
    assert before <= now["run_after"] <= after
    assert before <= now["created_at"] <= after
    assert dt.timedelta(hours=1) <= later["run_after"] - before <= dt.timedelta(hours=1) + (after - before)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("p_priority", "101"), ("p_priority", "40000"), ("p_max_attempts", "0"), ("p_timeout", "interval '0'"),
        ("p_timeout", "interval '-1 s'"), ("p_queue", "''"), ("p_dedupe_key", "''"),
        ("p_dedupe_key", "repeat('x', 2001)"),
        ("p_queue", "repeat('ü', 128)"), ("p_payload", "'[]'"), ("p_payload", "'1'"), ("p_on_conflict", "'sometimes'"),
    ],
)  # fmt: skip
def test_what_the_table_cannot_hold_is_refused(argument: str, value: str) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        call(f"'scripted', {argument} => {value}")
    assert not Job.objects.exists()


# The holder of a dedupe key -------------------------------------------------------------------------------------------

on_conflict = pytest.mark.parametrize("on_conflict", ["keep", "replace", "rerun"])


@pytest.mark.django_db
@on_conflict
def test_a_key_is_the_kinds_own_whatever_the_queue(on_conflict: str) -> None:
    first, _, _ = enqueue(dedupe_key="k", queue="a")
    assert enqueue(kind="other", dedupe_key="k", on_conflict=on_conflict)[1]
    assert enqueue(dedupe_key="K", on_conflict=on_conflict)[1]
    assert enqueue(dedupe_key="k", queue="b", on_conflict=on_conflict)[:2] == (first, False)
    store.reschedule(connection, [first], queue="c")
    assert enqueue(dedupe_key="k", on_conflict=on_conflict)[:2] == (first, False)


@pytest.mark.django_db
def test_without_a_key_nothing_is_a_duplicate() -> None:
    assert enqueue()[1]
    assert enqueue()[1]


@pytest.mark.django_db
@pytest.mark.parametrize("trait", ["scheduled", "retrying", "snoozed", "reserved", "lapsed", "cancel_requested"])
def test_keep_leaves_a_live_holder_as_it_is(trait: str) -> None:
    holder = JobFactory(**{trait: True}, dedupe_key="k")
    with nothing_changes():
        assert enqueue(dedupe_key="k", payload='{"b": 2}') == (holder.pk, False, "kept")


@pytest.mark.django_db
@on_conflict
@pytest.mark.parametrize("trait", ["done", "failed", "dead", "cancelled"])
def test_an_ended_job_holds_no_key(trait: str, on_conflict: str) -> None:
    ended = JobFactory(**{trait: True}, dedupe_key="k")
    with changes(ended.pk) as changed:
        id_, created, action = enqueue(dedupe_key="k", on_conflict=on_conflict)
    assert (created, action, changed) == (True, "created", {})
    assert id_ != ended.pk


@pytest.mark.django_db
@on_conflict
def test_an_expired_holder_has_ended(on_conflict: str) -> None:
    holder = JobFactory(expired=True, dedupe_key="k")
    with changes(holder.pk) as changed:
        _, created, action = enqueue(dedupe_key="k", on_conflict=on_conflict)
    assert (created, action) == (True, "created")
    assert set(changed) == {"status", "finished_at", "last_error"}
    assert (changed["status"], changed["last_error"]) == ("cancelled", "expired")


@pytest.mark.django_db
@pytest.mark.parametrize("trait", [None, "scheduled", "retrying", "snoozed"])
def test_replace_gives_a_pending_holder_payload_run_after_and_priority_of_this_call(trait: str | None) -> None:
    holder = JobFactory(
        **{trait: True} if trait else {}, dedupe_key="k", queue="q", priority=9, payload={"a": 1}, meta={"m": 1}
    )
    before = database_now()
    with changes(holder.pk) as changed:
        answer = enqueue(
            dedupe_key="k", on_conflict="replace", payload='{"b": 2}', queue="other", max_attempts=3, timeout=1.0,
            meta='{"m": 2}', expires_at=timezone.now() + dt.timedelta(hours=1),
        )  # fmt: skip
    assert answer == (holder.pk, False, "replaced")
    assert changed.pop("run_after") >= before
    assert changed == {"payload": {"b": 2}, "priority": 0}


@pytest.mark.django_db
@pytest.mark.parametrize("on_conflict", ["rerun", "replace"])
def test_while_the_holder_runs_the_wish_is_kept_and_the_running_row_is_not_touched(on_conflict: str) -> None:
    holder = held(dedupe_key="k")
    with changes(holder.id) as changed:
        answer = enqueue(dedupe_key="k", on_conflict=on_conflict, payload='{"b": 2}', queue="q", priority=5)
    assert (answer, changed) == ((holder.id, False, "rerun"), {})
    wish = Rerun.objects.get()
    assert (wish.kind, wish.dedupe_key, wish.payload, wish.queue, wish.priority) == ("scripted", "k", {"b": 2}, "q", 5)


@pytest.mark.django_db
def test_rerun_of_a_pending_holder_keeps_it() -> None:
    holder = JobFactory(dedupe_key="k")
    with nothing_changes():
        assert enqueue(dedupe_key="k", on_conflict="rerun", payload='{"b": 2}') == (holder.pk, False, "kept")


@pytest.mark.django_db
def test_the_latest_wish_wins() -> None:
    held(dedupe_key="k")
    for n in (1, 2, 3):
        enqueue(dedupe_key="k", on_conflict="rerun", payload=f'{{"n": {n}}}')
    assert Rerun.objects.get().payload == {"n": 3}


@pytest.mark.django_db
def test_a_duplicate_leaves_the_callers_transaction_usable() -> None:
    """F29"""
    with transaction.atomic():
        JobFactory(dedupe_key="k")
        assert not enqueue(dedupe_key="k")[1]
        JobFactory()
    assert Job.objects.count() == 2


@pytest.mark.django_db
def test_a_plain_insert_of_a_duplicate_is_refused_by_the_index() -> None:
    JobFactory(dedupe_key="k")
    with pytest.raises(IntegrityError, match="pgjobs_dedupe"), transaction.atomic():
        JobFactory(dedupe_key="k")


@pytest.mark.parametrize("how", ["FOR UPDATE", "FOR KEY SHARE"])
@pytest.mark.parametrize("on_conflict", ["keep", "rerun"])
def test_it_does_not_wait_for_a_running_holder_whose_row_somebody_locks(
    on_conflict: str, how: str, hold_row: Hold
) -> None:
    holder = held(dedupe_key="k")
    hold_row(holder.id, how)
    assert enqueue(dedupe_key="k", on_conflict=on_conflict)[:2] == (holder.id, False)


# Notifications --------------------------------------------------------------------------------------------------------


def test_workers_are_told_of_what_comes_due_within_the_hour(heard: Callable[[], list[str]]) -> None:
    enqueue(queue="a")
    enqueue(queue="b", run_after=1800.0)
    enqueue(queue="c", run_after=7200.0)
    assert heard() == ["a", "b"]


def test_one_notification_a_queue_and_transaction(heard: Callable[[], list[str]]) -> None:
    with transaction.atomic():
        for _ in range(5):
            enqueue(queue="a")
            enqueue(queue="b")
    assert heard() == ["a", "b"]


def test_workers_are_told_at_commit_or_never(heard: Callable[[], list[str]]) -> None:
    with transaction.atomic():
        enqueue()
        transaction.set_rollback(True)
    assert heard() == []


def test_of_a_duplicate_nobody_is_told_but_of_a_replaced_job(heard: Callable[[], list[str]]) -> None:
    enqueue(dedupe_key="k", queue="a", run_after=7200.0)
    assert heard() == []
    enqueue(dedupe_key="k")
    assert heard() == []
    enqueue(dedupe_key="k", on_conflict="replace")
    assert heard() == ["a"]


def test_without_notify_nobody_is_told_and_the_silence_ends_with_the_transaction(
    heard: Callable[[], list[str]],
) -> None:
    store.enqueue(connection, new(), notify=False)
    store.enqueue(connection, new(dedupe_key="k", queue="r"), notify=False)
    store.enqueue(connection, new(dedupe_key="k", on_conflict="replace"), notify=False)
    assert heard() == []
    enqueue()
    assert heard() == ["default"]


def test_a_plain_insert_tells_workers_too(heard: Callable[[], list[str]]) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO pgjobs_job (kind, queue) SELECT 'x', q FROM unnest('{a,b,a}'::text[]) q")
    assert sorted(heard()) == ["a", "b"]


@pytest.mark.parametrize("queue", ["q" * 255, "quo\"te's", "ümläut", "a;--", "\\"])
def test_any_name_of_a_queue_can_be_told(queue: str, heard: Callable[[], list[str]]) -> None:
    """F49"""
    enqueue(queue=queue, payload='{"large": "%s"}' % ("x" * 1_000_000))
    assert heard() == [queue]
    assert [job.queue for job in claim(queues=[queue])] == [queue]
