"""What a keeper does: beat, reap, expire, prune."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .calling import Connection, rows, value


@dataclass(frozen=True, slots=True)
class Beat:
    """A worker's row, for people to look at."""

    worker: str
    host: str
    pid: int
    queues: Sequence[str]
    exclude_queues: Sequence[str]
    kinds: Sequence[str]
    threads: int


class Event(NamedTuple):
    """One thing that a beat found: ``event`` is lost, cancel, busy (of the job ``id``), reaped, expired (``attempts``: how many),
    suspects (there are jobs that must run alone), next, or tick (``seconds``).
    """

    event: str
    id: int | None
    kind: str | None
    queue: str | None
    status: str | None
    attempts: int | None
    worker: str | None
    seconds: float | None


def beat(
    connection: Connection,
    who: Beat,
    *,
    ids: Sequence[int],
    leases: Sequence[int],
    lease: float,
    stopping: bool,
) -> list[Event]:
    """The worker's row, heartbeat, reap and leftover wishes, in one statement."""
    found = rows(
        connection,
        "SELECT event, id, kind, queue, status, attempts, worker, seconds FROM pgjobs_beat(%s, %s, %s, %s::text[],"
        " %s::text[], %s::text[], %s, %s, %s, %s::bigint[], %s::bigint[], make_interval(secs => %s))",
        (
            who.worker,
            who.host,
            who.pid,
            list(who.queues),
            list(who.exclude_queues),
            list(who.kinds),
            who.threads,
            len(ids),
            stopping,
            list(ids),
            list(leases),
            lease,
        ),
    )
    return [Event(*row) for row in found]


def undertake(
    connection: Connection,
    worker: str,
    *,
    running: Sequence[tuple[int, int]],
    returned: Sequence[tuple[int, int]],
    cause: str,
) -> list[tuple[str, int | None, str | None, str | None, str | None, int | None]]:
    """End what a dead process held; ``running`` and ``returned`` are (id, lease) of jobs in or past their handler.

    Answers (event, id, kind, queue, status, attempts): crashed, suspect, released, and left (attempts: how many
    rows are locked by others: call again).
    """
    return rows(
        connection,
        "SELECT event, id, kind, queue, status, attempts FROM pgjobs_undertake("
        "%s, %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s)",
        (
            worker,
            [id_ for id_, _ in running],
            [lease for _, lease in running],
            [id_ for id_, _ in returned],
            [lease for _, lease in returned],
            cause,
        ),
    )


def forget_worker(connection: Connection, worker: str) -> None:
    """Remove the row of a worker that ended as it should."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM pgjobs_worker WHERE name = %s", [worker])


def reap(connection: Connection, *, batch: int = 1000) -> list[tuple[int, str, str, str, int, str]]:
    """Lapsed reservations → pending, dead or cancelled: (id, kind, queue, new status, attempts, lost worker)."""
    return rows(connection, "SELECT id, kind, queue, status, attempts, worker FROM pgjobs_reap(%s)", (batch,))


def expire(connection: Connection, *, batch: int = 1000) -> int:
    """Pending jobs past ``expires_at`` → cancelled; how many."""
    return int(value(connection, "SELECT pgjobs_expire(%s)", (batch,)))


def prune_old(connection: Connection, ages: Mapping[str, dt.timedelta], *, batch: int = 1000) -> dict[str, int]:
    """Jobs of each final status that ended longer than its age ago → gone, the oldest first; how many of each."""
    calls = ", ".join(["pgjobs_prune_old(%s, make_interval(secs => %s), %s)"] * len(ages))
    params = [p for status, age in ages.items() for p in (status, age.total_seconds(), batch)]
    [counts] = rows(connection, f"SELECT {calls}", params) if ages else [()]
    return dict(zip(ages, counts, strict=True))
