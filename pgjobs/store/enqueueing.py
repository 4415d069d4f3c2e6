"""enqueue: the ways in."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from collections.abc import Sequence
from typing import NamedTuple

from .calling import Connection, first_argument, rows


class NewJob(NamedTuple):
    """A job that was checked and is ready to be stored; ``payload`` and ``meta`` are JSON text, times are seconds."""

    kind: str
    payload: str
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    run_after: dt.datetime | float | None = None
    dedupe_key: str | None = None
    on_conflict: str = "keep"
    expires_at: dt.datetime | None = None
    meta: str | None = None


def enqueue(
    connection: Connection, job: NewJob, *, parent_id: int | None = None, notify: bool = True
) -> tuple[int, bool, str]:
    """Store one job; the id of it or of the holder of its dedupe key, whether it was created, and the action.

    ``notify=False`` silences the rest of the caller's transaction: workers find the job by polling.
    """
    kind = first_argument(notify)
    run_after = "%s"
    if isinstance(job.run_after, float):
        run_after = "clock_timestamp() + make_interval(secs => %s)"
    [(id_, created, action)] = rows(
        connection,
        f"SELECT id, created, action FROM pgjobs_enqueue({kind}, %s::jsonb, {run_after}, %s, %s, %s,"  # noqa: S608
        " make_interval(secs => %s), %s, %s, %s, %s::jsonb, %s)",
        (
            job.kind,
            job.payload,
            job.run_after,
            job.priority,
            job.dedupe_key,
            job.max_attempts,
            job.timeout,
            job.queue,
            job.on_conflict,
            job.expires_at,
            job.meta,
            parent_id,
        ),
    )
    return id_, created, action


def enqueue_many(
    connection: Connection, jobs: Sequence[NewJob], *, parent_id: int | None = None, notify: bool = True
) -> list[tuple[int, bool, str]]:
    """Store many jobs by one statement; an answer for each, in their order. Some thousand at a time."""
    plain: list[int] = []
    keyed: list[int] = []
    for n, job in enumerate(jobs):
        (plain if job.dedupe_key is None else keyed).append(n)
    # Neighbours that differ in their payloads alone are told once what they share.
    alike = [list(some) for _, some in itertools.groupby(plain, key=lambda n: jobs[n][:1] + jobs[n][2:])]
    elements = [_as_json(jobs[some[0]], "[" + ",".join([jobs[n].payload for n in some]) + "]") for some in alike]
    elements += [_as_json(jobs[n], jobs[n].payload) for n in keyed]
    data = first_argument(notify)
    answers: list[tuple[int, bool, str]] = [(0, False, "")] * len(jobs)
    for place, ids, created, action in rows(
        connection,
        f"SELECT place, ids, created, action FROM pgjobs_enqueue_many({data}::jsonb, %s)",  # noqa: S608
        ("[" + ",".join(elements) + "]", parent_id),
    ):
        if place is None:
            for n, id_ in zip(plain, ids, strict=True):
                answers[n] = (id_, created, action)
        else:
            answers[keyed[place - 1 - len(alike)]] = (ids[0], created, action)
    return answers


def _as_json(job: NewJob, payload: str) -> str:
    """One element of ``p_jobs``; the payload, or an array of them, goes in as the text that it already is."""
    parts = [
        f'{{"k":{json.dumps(job.kind)},"p":{payload},"q":{json.dumps(job.queue)},"r":{job.priority}'
        f',"n":{job.max_attempts},"t":{"null" if job.timeout is None else repr(job.timeout)}'
    ]
    if isinstance(job.run_after, dt.datetime):
        parts.append(f',"a":"{job.run_after.isoformat()}"')
    elif job.run_after is not None:
        parts.append(f',"d":{job.run_after!r}')
    if job.dedupe_key is not None:
        parts.append(f',"u":{json.dumps(job.dedupe_key)},"c":"{job.on_conflict}"')
    if job.expires_at is not None:
        parts.append(f',"e":"{job.expires_at.isoformat()}"')
    if job.meta is not None:
        parts.append(f',"m":{job.meta}')
    parts.append("}")
    return "".join(parts)
