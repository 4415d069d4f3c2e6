"""What fires schedules: which are due, tick, and what code declares.

Times come up as aware datetimes in UTC, whatever ``USE_TZ`` and the session's zone are.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .calling import EPOCH, Connection, first_argument, rows, value
from .enqueueing import NewJob


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A schedule that has to be looked at: its tick is due, or (``next_run_at`` None) its next time is not known.

    ``revision``, ``errors`` and ``next_run_at`` say which state of the row was read: what is written later is written to
    that state or not at all. ``due_since`` is when it came to be looked at, ``read_at`` is now, by the database's clock.
    ``payload`` is JSON text: one that cannot be read is the trouble of its own schedule.
    """

    id: int
    name: str
    kind: str
    queue: str | None
    payload: str
    payload_from: str
    cron: str
    every: dt.timedelta | None
    timezone: str
    misfire: str
    overlap: str
    max_lateness: dt.timedelta | None
    revision: int
    errors: int
    next_run_at: dt.datetime | None
    last_tick_at: dt.datetime | None
    due_since: dt.datetime
    read_at: dt.datetime


class Ticked(NamedTuple):
    """One tick that was written; ``outcome`` is enqueued, queued, skipped or missed."""

    scheduled_for: dt.datetime
    outcome: str
    job_id: int | None


def due_ticks(connection: Connection, *, limit: int = 1000) -> list[DueSchedule]:
    """The schedules to look at now, the longest waiting first; nothing is locked."""
    return [
        DueSchedule(
            id_,
            name,
            kind,
            queue,
            payload,
            payload_from,
            cron,
            _span(every),
            zone,
            misfire,
            overlap,
            _span(lateness),
            revision,
            errors,
            _time(next_run_at),
            _time(last_tick_at),
            EPOCH + dt.timedelta(microseconds=due_since),
            EPOCH + dt.timedelta(microseconds=read_at),
        )
        for (
            id_, name, kind, queue, payload, payload_from, cron, every, zone, misfire, overlap, lateness, revision, errors,
            next_run_at, last_tick_at, due_since, read_at,
        ) in rows(
            connection,
            "SELECT id, name, kind, queue, payload, payload_from, cron, every, timezone, misfire, overlap, max_lateness,"
            " revision, errors, next_run_at, last_tick_at, due_since, read_at FROM pgjobs_due_ticks(%s)",
            (limit,),
        )
    ]  # fmt: skip


def next_tick(connection: Connection) -> float | None:
    """Seconds until a schedule has to be looked at; 0 when one is due, None when none is enabled."""
    seconds = value(connection, "SELECT pgjobs_next_tick()")
    return None if seconds is None else float(seconds)


def tick(
    connection: Connection,
    schedule: DueSchedule,
    job: NewJob,
    *,
    times: Sequence[dt.datetime],
    missed: dt.datetime | None,
    following: dt.datetime,
    note: str = "",
    once: bool = False,
    notify: bool = True,
) -> list[Ticked]:
    """Write the ticks of ``times`` with their jobs, and the time that follows, in one statement.

    ``missed`` is the last time that is left out; ``note`` becomes ``last_error``; ``once`` lets at most one of its jobs
    live, whatever the schedule's overlap. Answers nothing, and has changed nothing, when another worker was first, the
    schedule was edited, or somebody holds its row.
    """
    id_ = first_argument(notify)
    found = rows(
        connection,
        "SELECT (extract(epoch FROM scheduled_for) * 1000000)::bigint, outcome, job_id FROM pgjobs_tick("  # noqa: S608
        f"{id_}, %s, %s, %s::timestamptz[], %s, %s, %s, %s, %s::jsonb, %s, %s, make_interval(secs => %s), %s, %s::jsonb, %s)",
        (
            schedule.id,
            schedule.revision,
            schedule.next_run_at,
            list(times),
            missed,
            following,
            note,
            job.kind,
            job.payload,
            job.priority,
            job.max_attempts,
            job.timeout,
            job.queue,
            job.meta,
            once,
        ),
    )
    return [Ticked(EPOCH + dt.timedelta(microseconds=at), outcome, job_id) for at, outcome, job_id in found]


def plan_tick(connection: Connection, schedule: DueSchedule, next_run_at: dt.datetime, zone: str) -> bool:
    """Give a schedule without a next time this one, and ``zone`` when it has none; whether it was written."""
    sql = "SELECT pgjobs_plan_tick(%s, %s, %s, %s)"
    return bool(value(connection, sql, (schedule.id, schedule.revision, next_run_at, zone)))


def tick_failed(connection: Connection, schedule: DueSchedule, error: str, pause: float) -> bool:
    """Write an error on the schedule, which is then left alone for ``pause`` seconds; whether it was written."""
    sql = "SELECT pgjobs_tick_failed(%s, %s, %s, %s, make_interval(secs => %s))"
    return bool(value(connection, sql, (schedule.id, schedule.revision, schedule.errors, error, pause)))


def prune_ticks(connection: Connection, age: float, *, batch: int = 1000) -> int:
    """Ticks older than ``age`` seconds whose jobs are gone → gone, at most ``batch`` of each schedule; how many."""
    return int(value(connection, "SELECT pgjobs_prune_ticks(make_interval(secs => %s), %s)", (age, batch)))


def declaration_state(connection: Connection, project: str, fingerprint: str, *, patience: float) -> str:
    """``current`` (it is marked as seen), ``outdated``, ``stale`` (the current one has not been seen for ``patience``
    seconds) or ``unknown``."""
    sql = "SELECT pgjobs_declaration_state(%s, %s, make_interval(secs => %s))"
    return str(value(connection, sql, (project, fingerprint, patience)))


def sync_schedules(
    connection: Connection,
    project: str,
    fingerprint: str,
    declared: Sequence[Mapping[str, Any]],
    *,
    zone: str,
    patience: float,
    force: bool = False,
) -> list[tuple[str, str]]:
    """Declared schedules → rows; (name, created, updated, restored, retired, busy or taken) for what was done.

    ``[("", "outdated")]``: newer code is in force, nothing was changed.
    """
    return rows(
        connection,
        "SELECT name, action FROM pgjobs_sync_schedules(%s, %s, %s::jsonb, %s, make_interval(secs => %s), %s)",
        (project, fingerprint, json.dumps(list(declared), ensure_ascii=False), zone, patience, force),
    )


def _span(microseconds: int | None) -> dt.timedelta | None:
    return None if microseconds is None else dt.timedelta(microseconds=microseconds)


def _time(microseconds: int | None) -> dt.datetime | None:
    return None if microseconds is None else EPOCH + dt.timedelta(microseconds=microseconds)
