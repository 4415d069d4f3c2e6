"""What plain SQL does to schedules: it is noticed, and what is new or changed starts from now (F96)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction

from pgjobs.models import Schedule, Tick
from tests.conftest import Connect
from tests.rows import database_now
from tests.ticking import MINUTE, due, fresh, look, overdue, schedule, tick

pytestmark = pytest.mark.django_db


def sql(statement: str, *params: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)


@pytest.fixture
def announced(transactional_db: None, connect: Connect) -> Callable[[], int]:
    """Answers how many announcements of edits were heard since the last time."""
    listener = connect()
    listener.execute("LISTEN pgjobs_schedule")

    def since() -> int:
        sql("SELECT pg_notify('pgjobs_schedule', 'end')")
        for count, notification in enumerate(listener.notifies(timeout=20)):
            if notification.payload == "end":
                return count
        raise AssertionError("the listener hears nothing")

    return since


def test_the_least_that_plain_sql_has_to_say() -> None:
    sql("INSERT INTO pgjobs_schedule (name, kind, every) VALUES ('x', 'write_note', '5 minutes')")
    sql("INSERT INTO pgjobs_schedule (name, kind, cron) VALUES ('y', 'write_note', '0 3 * * *')")
    assert look() == 2
    for one in Schedule.objects.all():
        assert one.next_run_at > database_now()
        assert (one.timezone, one.source, one.misfire, one.overlap, one.enabled) == (
            "UTC",
            "admin",
            "once",
            "allow",
            True,
        )
    assert not Tick.objects.exists(), "the first tick is the next one, not now"


RULES = ["cron = '1 1 1 1 *', every = NULL", "every = '2 minutes'", "timezone = 'Asia/Tokyo'", "enabled = false"]
OTHERS = [
    "payload = '{}'",
    "kind = 'add'",
    "queue = 'q'",
    "misfire = 'skip'",
    "overlap = 'skip'",
    "max_lateness = '1 s'",
    "name = 'z'",
]


@pytest.mark.parametrize("change", RULES + OTHERS)
def test_an_edit_is_announced_and_forgets_what_was_wrong(announced: Callable[[], int], change: str) -> None:
    one = schedule()
    nominal = overdue(one)
    Schedule.objects.filter(pk=one.pk).update(errors=3, last_error="boom", retry_at=database_now() + MINUTE)
    announced()
    sql(f"UPDATE pgjobs_schedule SET {change}")  # noqa: S608
    assert announced() == 1
    after = fresh(one.pk)
    assert after.revision == one.revision + 1
    assert (after.errors, after.last_error, after.retry_at) == (0, "", None)
    assert after.next_run_at == (None if change in RULES else nominal)
    assert after.updated_at > one.updated_at


def test_what_is_enabled_again_starts_from_now() -> None:
    """F96: a month later nothing is caught up."""
    one = schedule()
    look()
    sql("UPDATE pgjobs_schedule SET enabled = false")
    Schedule.objects.filter(pk=one.pk).update(
        next_run_at=database_now() - 43_200 * MINUTE
    )  # even if somebody left a time there
    sql("UPDATE pgjobs_schedule SET enabled = true")
    assert look() == 1
    assert fresh(one.pk).next_run_at > database_now()
    assert not Tick.objects.exists()


def test_an_update_that_changes_nothing_is_no_edit(announced: Callable[[], int]) -> None:
    one = schedule()
    nominal = overdue(one)
    announced()
    sql("UPDATE pgjobs_schedule SET kind = kind, every = every, enabled = enabled, timezone = timezone")
    after = fresh(one.pk)
    assert (announced(), after.revision, after.next_run_at) == (0, one.revision, nominal)


def test_a_tick_announces_no_edit(announced: Callable[[], int]) -> None:
    """Or ten workers would wake each other at every tick."""
    one = schedule()
    nominal = overdue(one)
    announced()
    assert tick(due(one), nominal)
    assert announced() == 0


def test_a_time_set_by_hand_is_announced_and_stays(announced: Callable[[], int]) -> None:
    one = schedule()
    look()
    announced()
    sooner = database_now().replace(microsecond=0)
    sql("UPDATE pgjobs_schedule SET next_run_at = %s", sooner)
    assert announced() == 1
    sql("UPDATE pgjobs_schedule SET every = '3 minutes', next_run_at = %s", sooner - MINUTE)
    assert fresh(one.pk).next_run_at == sooner - MINUTE


def test_inserting_and_deleting(announced: Callable[[], int]) -> None:
    """A plain DELETE takes the ticks along; the trigger is all that knows of them."""
    one, other = schedule(), schedule()
    assert announced() == 2
    for each in (one, other):
        nominal = overdue(each)
        assert tick(due(each), nominal)
    sql("DELETE FROM pgjobs_schedule WHERE id = %s", one.pk)
    assert list(Tick.objects.values_list("schedule_id", flat=True)) == [other.pk]


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        ("every", "every = '0.9 seconds'"),
        ("every", "every = '200 years'"),
        ("cron_or_every", "cron = '* * * * *'"),
        ("cron_or_every", "every = NULL"),
        ("misfire", "misfire = 'never'"),
        ("overlap", "overlap = ''"),
        ("source", "source = 'x'"),
        ("max_lateness", "max_lateness = '0'"),
        ("payload_is_object", "payload = '[]'"),
        ("name_length", "name = ''"),
        ("kind_length", "kind = repeat('x', 256)"),
        ("queue_length", "queue = ''"),
        *[(column, f"{column} = 'infinity'") for column in ("next_run_at", "last_tick_at", "retry_at", "updated_at")],
    ],
)
def test_what_no_worker_could_read_is_refused(constraint: str, change: str) -> None:
    """F101: a row that cannot be read would stop all the others."""
    schedule()
    with pytest.raises(IntegrityError, match=f'"pgjobs_schedule_{constraint}"'), transaction.atomic():
        sql(f"UPDATE pgjobs_schedule SET {change}")  # noqa: S608


def test_a_schedule_may_be_deleted_by_django() -> None:
    one: Any = schedule()
    nominal = overdue(one)
    assert tick(due(one), nominal)
    one.delete()
    assert not Tick.objects.exists()
