"""Lists of jobs for people: every answer comes through an index and stops at a limit, however many millions there are.

A filter is answered by *branches*, one for each status that it admits, each a walk of one partial index in that index's
order. Where the index does not know a condition (the queue of a finished job, the kind of a pending one), only the first
``WINDOW`` entries of the walk are looked through: a rare value would otherwise cost a walk of everything.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from ..states import FINAL, Status
from .calling import Connection, rows, value

CAP = 10_000
"""Rows that are counted, and rows that one can page to; past them, filter."""

WINDOW = 10_000
"""Entries of an index that are looked through for what it does not know."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A filter: any of ``statuses`` (none: all), a kind, a queue, an age since the end."""

    statuses: tuple[str, ...] = ()
    kind: str = ""
    queue: str = ""
    finished_within: dt.timedelta | None = None

    @property
    def everything(self) -> bool:
        """Whether nothing is filtered."""
        return self == Wanted()

    @property
    def branches(self) -> tuple[str, ...]:
        """The statuses to walk: running ones first, then pending, then finished ones."""
        order = ("reserved", "pending", *(status.value for status in FINAL))
        walked = order[2:] if self.finished_within is not None else order
        return tuple(status for status in walked if not self.statuses or status in self.statuses)

    @property
    def windowed(self) -> tuple[str, ...]:
        """The statuses of which only ``WINDOW`` are looked through."""
        return tuple(
            status
            for status in self.branches
            if (status == "pending" and self.kind) or (status not in ("pending", "reserved") and self.queue)
        )


def find(connection: Connection, wanted: Wanted, *, limit: int, offset: int = 0) -> list[int]:
    """Ids of jobs, the newest first; with a filter running ones, then pending ones as they are claimed, then the latest ended."""
    if wanted.everything:
        found = rows(connection, "SELECT id FROM pgjobs_job ORDER BY id DESC LIMIT %s OFFSET %s", (limit, offset))
        return [id_ for (id_,) in found]
    if not wanted.branches:
        return []
    sql, params = _union(wanted, limit + offset)
    found = rows(
        connection,
        f"SELECT id FROM ({sql}) found ORDER BY part, at DESC NULLS LAST, place, id DESC LIMIT %s OFFSET %s",  # noqa: S608
        (*params, limit, offset),
    )
    return [id_ for (id_,) in found]


def count(connection: Connection, wanted: Wanted) -> tuple[int, int | None]:
    """How many jobs, up to ``CAP`` + 1 (which means: more); and without a filter what the statistics say of the table."""
    if wanted.everything:
        [(counted, estimate)] = rows(
            connection,
            "SELECT (SELECT count(*) FROM (SELECT id FROM pgjobs_job ORDER BY id DESC LIMIT %s) newest),"
            " (SELECT reltuples::bigint FROM pg_class WHERE oid = 'pgjobs_job'::regclass)",
            (CAP + 1,),
        )
        return counted, estimate
    if not wanted.branches:
        return 0, None
    sql, params = _union(wanted, CAP + 1, counting=True)
    counted = f"SELECT count(*) FROM (SELECT FROM ({sql}) parts LIMIT %s) found"  # noqa: S608
    return int(value(connection, counted, (*params, CAP + 1))), None


def names(connection: Connection) -> tuple[list[str], list[str]]:
    """Kinds of finished jobs and queues of pending ones (200 of each at most), by loose index scans."""
    kinds, queues = _loose("kind", "finished_at IS NOT NULL"), _loose("queue", "status = 'pending'")
    found = rows(
        connection,
        f"SELECT 'kind', name FROM ({kinds}) kinds UNION ALL SELECT 'queue', name FROM ({queues}) queues",  # noqa: S608
    )
    return [name for what, name in found if what == "kind"], [name for what, name in found if what == "queue"]


def _loose(column: str, condition: str) -> str:
    """The distinct values of an index's first column, one probe each."""
    probe = f"SELECT j.{column} FROM pgjobs_job j WHERE j.{condition}"  # noqa: S608
    return f"""WITH RECURSIVE walk AS (
        ({probe} ORDER BY j.{column} LIMIT 1)
        UNION ALL
        SELECT ({probe} AND j.{column} > walk.{column} ORDER BY j.{column} LIMIT 1) FROM walk WHERE walk.{column} IS NOT NULL
      ) SELECT {column} AS name FROM walk WHERE {column} IS NOT NULL LIMIT 200"""  # noqa: S608


def _union(wanted: Wanted, limit: int, *, counting: bool = False) -> tuple[str, list[object]]:
    """The branches of a filter, each cut at ``limit``."""
    parts, params = [], list[object]()
    for status in wanted.branches:
        sql, some = _branch(wanted, status, limit, counting=counting)
        parts.append(f"({sql})")
        params += some
    return " UNION ALL ".join(parts), params


def _branch(wanted: Wanted, status: str, limit: int, *, counting: bool) -> tuple[str, list[object]]:
    if status == Status.RESERVED:
        # Few rows: all are read. reserved_by as a range keeps the planner on the small index (as in reap.sql).
        conditions, params = ["status = 'reserved'", "reserved_by >= ''"], list[object]()
        _add(conditions, params, "kind", wanted.kind)
        _add(conditions, params, "queue", wanted.queue)
        return _ordered("0", "NULL::timestamptz", "reserved_at, id", conditions, params, limit, counting=counting)
    if status == Status.PENDING:
        conditions, params = ["status = 'pending'"], []
        _add(conditions, params, "queue", wanted.queue)
        order, known, unknown = "queue, priority DESC, run_after, id", "NULL::timestamptz", ("kind", wanted.kind)
        part, walk = "1", order
    else:
        conditions, params = [], []
        _add(conditions, params, "kind", wanted.kind)
        conditions += [f"status = '{status}'", "finished_at IS NOT NULL"]
        if wanted.finished_within is not None:
            conditions.append("finished_at >= statement_timestamp() - make_interval(secs => %s)")
            params.append(wanted.finished_within.total_seconds())
        order, known, unknown = "finished_at DESC, id DESC", "finished_at", ("queue", wanted.queue)
        part, walk = "2", "finished_at DESC"
    if not unknown[1]:
        return _ordered(part, known, walk if counting else order, conditions, params, limit, counting=counting)
    window = (
        f"(SELECT id, kind, queue, priority, run_after, finished_at FROM pgjobs_job WHERE {' AND '.join(conditions)}"  # noqa: S608
        f" ORDER BY {walk} LIMIT {WINDOW}) seen"
    )
    return _ordered(
        part, known, order, [f"{unknown[0]} = %s"], [*params, unknown[1]], limit, counting=counting, table=window
    )


def _ordered(
    part: str,
    at: str,
    order: str,
    conditions: list[str],
    params: list[object],
    limit: int,
    *,
    counting: bool,
    table: str = "pgjobs_job",
) -> tuple[str, list[object]]:
    columns = "1" if counting else f"{part} AS part, {at} AS at, row_number() OVER (ORDER BY {order}) AS place, id"
    if part == "2" and not counting:  # of equal times the id decides, so that pages neither repeat nor lose a row
        columns = f"{part} AS part, {at} AS at, 0::bigint AS place, id"
    sql = f"SELECT {columns} FROM {table} WHERE {' AND '.join(conditions)} ORDER BY {order} LIMIT %s"  # noqa: S608
    return sql, [*params, limit]


def _add(conditions: list[str], params: list[object], column: str, wanted: str) -> None:
    if wanted:
        conditions.append(f"{column} = %s")
        params.append(wanted)
