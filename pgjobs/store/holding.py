"""Moves by a worker: it claims jobs, and ends each under the lease of its claim.

The functions that end a job answer its new status, or ``"busy"`` (somebody's open transaction holds the row: try again),
or ``"lost"`` (the lease is another's: nothing was changed).
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import operator
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .calling import Connection, rows, value

_META = 8
"""The place of ``meta`` among a claimed job's columns; in the first row it holds what the claim saw."""


class ClaimedJob(NamedTuple):
    """What a worker needs of a job to run it. ``timeout`` and ``waited`` (due → claimed) are seconds."""

    id: int
    lease: int
    kind: str
    queue: str
    payload: str
    attempt: int
    max_attempts: int
    timeout: float | None
    meta: dict[str, Any] | None
    scheduled_for: dt.datetime | None
    lost: int
    waited: float
    priority: int


_claimed = functools.partial(tuple.__new__, ClaimedJob)
"""What ``ClaimedJob._make`` does, but for its count of the columns."""

_by_id = operator.itemgetter(0)
_by_place = operator.itemgetter(ClaimedJob._fields.index("priority"), ClaimedJob._fields.index("waited"))


class Claim(NamedTuple):
    """What one claim brought, and what it saw on its way."""

    jobs: list[ClaimedJob]
    read: str | None = None
    """What is known of the queues, to be given to the next claim of the same worker on the same connection."""
    swept: bool = True
    """Whether all queues were read from the beginning."""
    took: float = 0.0
    """Seconds of the search."""
    due: float | None = None
    """Seconds until the next pending job of these queues comes due, or a pause ends; None: nothing waits, or nobody looked."""
    asleep: bool = False
    """Whether inserters see that this worker wants to be told."""
    settled: int = 0
    """All transactions before this one had ended when the search began."""
    unsettled: int | None = None
    """Transactions before this one may have told nobody of what they inserted: of a claim that fell asleep."""


def claim(
    connection: Connection,
    limit: int,
    worker: str,
    *,
    queues: Sequence[str] | None,
    exclude_queues: Sequence[str],
    kinds: Sequence[str] | None,
    lease: float,
    suspects: bool | None = None,
    read: str | None = None,
    asleep: bool = False,
    doze: bool = False,
) -> Claim:
    """pending → reserved: at most ``limit`` due jobs, the highest priority first, held for ``lease`` seconds.

    ``suspects``: True for only those that must run alone, False for none of them. ``read``: go on where the claim that
    answered it stopped. ``doze``: when nothing is found, let inserters know that this session wants to be told; ``asleep``:
    they know already.
    """
    found = rows(
        connection,
        "SELECT id, lease, kind, queue, payload, attempts, max_attempts, timeout, meta, scheduled_for, lost, waited, priority"
        " FROM pgjobs_claim_many(%s, %s, %s::text[], make_interval(secs => %s), %s::text[], %s::text[], %s, %s::jsonb, %s, %s)",
        (
            limit,
            worker,
            None if queues is None else _texts(queues),
            lease,
            None if kinds is None else _texts(kinds),
            _texts(exclude_queues),
            suspects,
            read,
            asleep,
            doze,
        ),
    )
    if not found:
        return Claim([])
    text = found[0][_META]
    seen = _loads(text)
    jobs = [
        _claimed(row if row[_META] is None else (*row[:_META], _loads(row[_META]), *row[_META + 1 :]))
        for row in found[1:]
    ]
    jobs.sort(key=_by_id)
    jobs.sort(key=_by_place, reverse=True)  # which leaves alike ones as they are
    return Claim(
        jobs, text, seen["swept"], seen["took"], seen["due"], seen["asleep"], seen["settled"], seen["unsettled"]
    )


def finish(connection: Connection, id: int, lease: int, result: str | None, note: str | None = None) -> bool:  # noqa: A002
    """reserved → done in the caller's transaction, waiting for the row if need be; whether the lease still held."""
    status = value(connection, "SELECT pgjobs_finish(%s, %s, true, %s, %s::jsonb)", (id, lease, note, result))
    return status is not None


def finish_many(
    connection: Connection,
    ids: Sequence[int],
    leases: Sequence[int],
    results: Mapping[int, str],
    notes: Mapping[int, str],
) -> dict[int, str]:
    """reserved → done, each under its own lease; ``{id: "busy" | "lost"}`` of those that were not finished.

    ``results`` holds JSON text, ``notes`` what the reader should know of a result that could not be stored.
    """
    kept = "{" + ",".join(f'"{id_}":{text}' for id_, text in results.items()) + "}" if results else None
    said = json.dumps({str(id_): note for id_, note in notes.items()}) if notes else None
    return dict(
        rows(
            connection,
            "SELECT id, outcome FROM pgjobs_finish_many(%s::bigint[], %s::bigint[], %s::jsonb, %s::jsonb)",
            (_numbers(ids), _numbers(leases), kept, said),
        )
    )


def retry(
    connection: Connection,
    id: int,  # noqa: A002 - the column's name
    lease: int,
    *,
    error: str,
    error_class: str = "",
    traceback: str = "",
    delay: float | None = None,
    outcome: str = "error",
    log: str = "",
) -> str:
    """reserved → pending in ``delay`` seconds (None: the default backoff), with a row of history."""
    return str(
        value(
            connection,
            "SELECT pgjobs_retry(%s, %s, %s, %s, %s, make_interval(secs => %s), %s, %s)",
            (id, lease, error, error_class, traceback, delay, outcome, log),
        )
    )


def bury(
    connection: Connection,
    id: int,  # noqa: A002
    lease: int,
    *,
    error: str,
    error_class: str = "",
    traceback: str = "",
    outcome: str = "error",
    log: str = "",
) -> str:
    """reserved → dead, because no attempt is left, with a row of history."""
    return str(
        value(
            connection,
            "SELECT pgjobs_bury(%s, %s, %s, %s, %s, %s, %s)",
            (id, lease, error, error_class, traceback, outcome, log),
        )
    )


def fail(
    connection: Connection,
    id: int,  # noqa: A002
    lease: int,
    *,
    error: str,
    error_class: str = "",
    traceback: str = "",
    log: str = "",
) -> str:
    """reserved → failed, because it can never work, with a row of history."""
    return str(
        value(
            connection,
            "SELECT pgjobs_fail(%s, %s, %s, %s, %s, %s)",
            (id, lease, error, error_class, traceback, log),
        )
    )


def snooze(connection: Connection, id: int, lease: int, *, until: dt.datetime | float, reason: str = "") -> str:  # noqa: A002
    """reserved → pending at ``until`` (a time, or seconds from now); the attempt is given back."""
    when = "%s" if isinstance(until, dt.datetime) else "clock_timestamp() + make_interval(secs => %s)"
    return str(value(connection, f"SELECT pgjobs_snooze(%s, %s, {when}, %s)", (id, lease, until, reason)))


def cancel_held(connection: Connection, id: int, lease: int, *, reason: str, log: str = "") -> str:  # noqa: A002
    """reserved → cancelled, because its handler said so."""
    return str(value(connection, "SELECT pgjobs_cancel_held(%s, %s, %s, %s)", (id, lease, reason, log)))


def release(
    connection: Connection, ids: Sequence[int], leases: Sequence[int], *, started: bool, reason: str = ""
) -> dict[int, str]:
    """reserved → pending now, the attempt given back (of a started one five times at most); an answer for each id."""
    return dict(
        rows(
            connection,
            "SELECT id, outcome FROM pgjobs_release(%s::bigint[], %s::bigint[], %s, %s)",
            (list(ids), list(leases), started, reason),
        )
    )


def release_unknown(connection: Connection, worker: str, known: Sequence[int]) -> dict[int, str]:
    """reserved → pending now, the attempt given back, for all that ``worker`` holds besides ``known``; an answer for each."""
    return dict(
        rows(connection, "SELECT id, outcome FROM pgjobs_release_unknown(%s, %s::bigint[])", (worker, list(known)))
    )


def progress(connection: Connection, id: int, lease: int, text: str) -> str:  # noqa: A002
    """Store what a handler says about how far it is (JSON text); no move."""
    return str(value(connection, "SELECT pgjobs_progress(%s, %s, %s::jsonb)", (id, lease, text)))


def still_owned(connection: Connection, id: int, lease: int) -> bool:  # noqa: A002
    """Whether the job is still held under this lease."""
    return bool(value(connection, "SELECT pgjobs_still_owned(%s, %s)", (id, lease)))


def _numbers(some: Sequence[int]) -> str:
    """An array as PostgreSQL reads it: of many numbers quicker to write than a list is to adapt."""
    return "{" + ",".join(map(str, some)) + "}"


def _texts(some: Sequence[str]) -> str:
    """An array of texts, in the same way."""
    return "{" + ",".join('"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for text in some) + "}"


def _loads(text: Any) -> Any:
    """jsonb as raw SQL through Django's connection returns it: text."""
    return json.loads(text) if isinstance(text, str) else text
