"""What a statement reads: the buffers of all that it does inside, and the entries of each index that it walks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import connection, connections


@dataclass(frozen=True)
class Reading:
    """``buffers`` that it touched, ``seq_scans`` of the jobs, and for each index of the jobs the entries that it read."""

    rows: int
    buffers: int
    seq_scans: int
    entries: dict[str, int]


def reading(statement: str, *params: object) -> Reading:
    """Run a statement under EXPLAIN and tell what it read. Counters of the running transaction see into functions."""
    with connection.cursor() as cursor:
        before = _counters(cursor)
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", params or None)
        [(found,)] = cursor.fetchall()
        after = _counters(cursor)
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    entries = {name: after[name][1] - before[name][1] for name in after if after[name][0] > before[name][0]}
    seq_scans = after["pgjobs_job"][0] - before["pgjobs_job"][0]
    entries.pop("pgjobs_job", None)
    return Reading(plan["Actual Rows"], plan["Shared Hit Blocks"] + plan["Shared Read Blocks"], seq_scans, entries)


def _counters(cursor: Any) -> dict[str, tuple[int, int]]:
    """For the table of jobs and each index of it: scans, and rows or entries read, in this transaction."""
    cursor.execute(
        "SELECT c.relname, pg_stat_get_xact_numscans(c.oid), pg_stat_get_xact_tuples_returned(c.oid) FROM pg_class c"
        " WHERE c.oid = 'pgjobs_job'::regclass"
        " OR c.oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'pgjobs_job'::regclass)"
    )
    return {name: (scans, entries) for name, scans, entries in cursor.fetchall()}


@contextmanager
def loaded(*statements: str) -> Iterator[psycopg.Connection[Any]]:
    """The table of jobs, filled by the statements and left alone by autovacuum; empty again afterwards."""
    parameters = connections["default"].get_connection_params()
    for name in ("cursor_factory", "context"):
        parameters.pop(name, None)
    with psycopg.connect(**parameters | {"autocommit": True}) as raw:
        try:
            raw.execute("ALTER TABLE pgjobs_job SET (autovacuum_enabled = false)")
            raw.execute("SET pgjobs.notify = off")
            raw.execute("SET synchronous_commit = off")
            for statement in statements:
                raw.execute(statement)
            yield raw
        finally:
            raw.execute("TRUNCATE pgjobs_job, pgjobs_attempt, pgjobs_rerun")
            raw.execute("ALTER TABLE pgjobs_job RESET (autovacuum_enabled)")
            raw.execute("ANALYZE pgjobs_job")


FINISHED = """
INSERT INTO pgjobs_job (kind, queue, status, attempts, run_after, created_at, finished_at, worker, dedupe_key)
SELECT 'kind-' || n % 10, 'queue-' || n % 20, CASE n % 30 WHEN 0 THEN 'dead' WHEN 1 THEN 'cancelled' ELSE 'done' END, 1,
       now() - interval '9 days' + n * interval '1 second', now() - interval '9 days',
       now() - interval '9 days' + n * interval '1 second', 'w', CASE WHEN n % 3 = 0 THEN 'key-' || n END
FROM generate_series(1, {rows}) n
"""
DUE = """
INSERT INTO pgjobs_job (kind, queue, priority, run_after, dedupe_key)
SELECT 'kind-' || n % 10, 'queue-' || n % 20, n % 3, now() - interval '1 hour' + n * interval '1 millisecond',
       CASE WHEN n % 3 = 0 THEN 'due-' || n END
FROM generate_series(1, {rows}) n
"""
FUTURE = """
INSERT INTO pgjobs_job (kind, queue, priority, run_after, expires_at)
SELECT 'kind-' || n % 10, 'queue-' || n % 20, 100, now() + interval '1 day' + n * interval '1 millisecond',
       CASE WHEN n % 10 = 0 THEN now() + interval '2 days' END
FROM generate_series(1, {rows}) n
"""
RESERVED = """
INSERT INTO pgjobs_job (kind, queue, status, attempts, lease, reserved_by, worker, reserved_at, reserved_until, last_attempted_at)
SELECT 'kind-' || n % 10, 'queue-' || n % 20, 'reserved', 1, n, 'w-' || n % 8, 'w-' || n % 8, now(),
       now() + interval '1 hour', now()
FROM generate_series(1, {rows}) n
"""
