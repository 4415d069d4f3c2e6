"""Moves by an operator, each on many ids at once.

Rows are taken in small batches, each in its own transaction (unless the caller has one open), and rows that others hold
are tried again for a moment: what is still held then is reported as ``busy``, so that a bulk action neither waits for a
claim nor deadlocks with one.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Sequence

from .calling import Connection, rows, value

BATCH = 1000
"""Rows that one statement takes."""

PATIENCE = 1.0
"""Seconds that busy rows are tried again."""


def cancel(connection: Connection, ids: Iterable[int], *, by: str = "") -> dict[int, str]:
    """pending → cancelled, reserved → asked to stop; per id: cancelled, requested, not_live, missing or busy."""
    return _in_batches(
        ids,
        lambda some: dict(rows(connection, "SELECT id, outcome FROM pgjobs_cancel(%s::bigint[], %s)", (some, by))),
    )


def bury_pending(connection: Connection, ids: Iterable[int], *, by: str = "") -> dict[int, str]:
    """pending → dead; per id: buried, not_pending, missing or busy."""
    return _in_batches(
        ids,
        lambda some: dict(
            rows(connection, "SELECT id, outcome FROM pgjobs_bury_pending(%s::bigint[], %s)", (some, by))
        ),
    )


def requeue(connection: Connection, ids: Iterable[int]) -> dict[int, tuple[str, int | None]]:
    """final → pending now; per id: requeued, key_in_use (and by which job), not_final, missing or busy."""
    holders: dict[int, int | None] = {}

    def some(batch: list[int]) -> dict[int, str]:
        outcomes = {}
        for id_, outcome, holder in rows(
            connection, "SELECT id, outcome, holder FROM pgjobs_requeue(%s::bigint[])", (batch,)
        ):
            outcomes[id_], holders[id_] = outcome, holder
        return outcomes

    return {id_: (outcome, holders.get(id_)) for id_, outcome in _in_batches(ids, some).items()}


def reschedule(
    connection: Connection,
    ids: Iterable[int],
    *,
    run_after: dt.datetime | None = None,
    priority: int | None = None,
    queue: str | None = None,
) -> dict[int, str]:
    """pending → pending at another time, priority or queue; per id: rescheduled, not_pending, missing or busy."""
    return _in_batches(
        ids,
        lambda some: dict(
            rows(
                connection,
                "SELECT id, outcome FROM pgjobs_reschedule(%s::bigint[], %s, %s, %s)",
                (some, run_after, priority, queue),
            )
        ),
    )


def prune(connection: Connection, ids: Iterable[int]) -> dict[int, str]:
    """final → gone, with its history; per id: pruned, not_final, missing or busy."""
    return _in_batches(
        ids, lambda some: dict(rows(connection, "SELECT id, outcome FROM pgjobs_prune(%s::bigint[])", (some,)))
    )


def pause(
    connection: Connection, scope: str, name: str, *, until: dt.datetime | None = None, by: str = "", reason: str = ""
) -> None:
    """No new claims of a ``queue`` or a ``kind``, until a time or until it is resumed."""
    value(connection, "SELECT pgjobs_pause(%s, %s, %s, %s, %s)", (scope, name, until, by, reason))


def resume(connection: Connection, scope: str, name: str) -> bool:
    """End a pause; whether there was one."""
    return bool(value(connection, "SELECT pgjobs_resume(%s, %s)", (scope, name)))


def _in_batches(ids: Iterable[int], move: Callable[[list[int]], dict[int, str]]) -> dict[int, str]:
    """Outcomes of ``move`` for all ids, batch by batch, in order; busy ones are tried again for a moment."""
    todo: Sequence[int] = sorted(set(ids))
    outcomes: dict[int, str] = {}
    deadline = time.monotonic() + PATIENCE
    while todo:
        for start in range(0, len(todo), BATCH):
            outcomes |= move(list(todo[start : start + BATCH]))
        todo = [id_ for id_ in todo if outcomes.get(id_) == "busy"]
        if not todo or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return outcomes
