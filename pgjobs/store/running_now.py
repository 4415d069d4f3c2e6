"""A job of a schedule that somebody asks for."""

from __future__ import annotations

import datetime as dt

from .calling import EPOCH, Connection, first_argument, rows, value
from .enqueueing import NewJob


def run_now(
    connection: Connection,
    schedule_id: int,
    job: NewJob,
    *,
    scheduled_for: dt.datetime,
    key: str | None = None,
    since: dt.datetime | None = None,
    notify: bool = True,
) -> tuple[int, bool]:
    """Store a job of a schedule outside its ticks; its id, and whether it was created.

    With ``key``, at most one job of that key since ``since``: a second call answers with the first one's job, also when
    that has ended (as long as finished jobs are kept).
    """
    id_ = first_argument(notify)
    [(job_id, created)] = rows(
        connection,
        f"SELECT id, created FROM pgjobs_run_now({id_}, %s, %s, %s, %s, %s::jsonb, %s, %s, make_interval(secs => %s), %s,"  # noqa: S608
        " %s::jsonb)",
        (
            schedule_id,
            scheduled_for,
            key,
            since,
            job.kind,
            job.payload,
            job.priority,
            job.max_attempts,
            job.timeout,
            job.queue,
            job.meta,
        ),
    )
    return job_id, created


def database_time(connection: Connection) -> dt.datetime:
    """Now by the database's clock, in UTC, whatever ``USE_TZ`` and the session's zone are."""
    microseconds = value(connection, "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    return EPOCH + dt.timedelta(microseconds=microseconds)
