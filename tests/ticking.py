"""Schedules for tests: rows, and how time passes for them (rows are moved, nobody waits)."""

# ruff: noqa: A002 - parameters are named like the columns
from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from django.db import connection

from pgjobs import store
from pgjobs.api.enqueueing import Enqueued, prepare
from pgjobs.conf import Settings, get_settings
from pgjobs.models import Job, Schedule, Tick
from pgjobs.schedules.firing import Firing
from pgjobs.schedules.payloads import Payloads
from tests.rows import database_now

MINUTE = dt.timedelta(minutes=1)
SECOND = dt.timedelta(seconds=1)


def schedule(**fields: Any) -> Schedule:
    """A schedule of the given columns: each minute, ``write_note``, unless told otherwise."""
    if "cron" not in fields:
        fields.setdefault("every", MINUTE)
    given = {"name": f"s{Schedule.objects.count()}", "kind": "write_note", "payload": {"text": "x"}, "timezone": "UTC"}
    made = Schedule.objects.create(**given | fields)
    return fresh(made.pk)


def fresh(id: int) -> Schedule:
    return Schedule.objects.get(pk=id)


def overdue(one: Schedule, ago: dt.timedelta = dt.timedelta(0), at: dt.datetime | None = None) -> dt.datetime:
    """Let a schedule's next tick be the last full minute, or that much earlier (or ``at``); its nominal time."""
    nominal = at or database_now().astimezone(dt.UTC).replace(second=0, microsecond=0) - ago
    Schedule.objects.filter(pk=one.pk).update(next_run_at=nominal)
    return nominal


def retried(one: Schedule) -> None:
    """The pause after an error is over."""
    Schedule.objects.filter(pk=one.pk).update(retry_at=database_now() - SECOND)


def look(
    settings: Settings | None = None,
    enqueued: Callable[[Enqueued], None] = lambda _: None,
    payloads: Payloads | None = None,
) -> int:
    """What a worker does with schedules that are due; how many it brought forward."""
    return Firing(settings or get_settings(), payloads or Payloads(lambda: None), enqueued).step(connection)


def due(one: Schedule) -> store.DueSchedule:
    """The schedule as a worker reads it."""
    [found] = [row for row in store.due_ticks(connection) if row.id == one.pk]
    return found


def tick(row: store.DueSchedule, *times: dt.datetime, **options: Any) -> list[store.Ticked]:
    """The verb, with the job of a note."""
    new = prepare("write_note", {"text": "x"}).new
    defaults = {"times": times, "missed": None, "following": row.read_at + MINUTE}
    return store.tick(connection, row, new, **defaults | options)


def ticks(one: Schedule) -> list[tuple[dt.datetime, str]]:
    """(nominal time, outcome) in order."""
    found = Tick.objects.filter(schedule_id=one.pk).order_by("scheduled_for")
    return [(one.scheduled_for, one.outcome) for one in found]


def jobs(one: Schedule) -> list[Job]:
    return list(Job.objects.filter(schedule_id=one.pk).order_by("id"))
