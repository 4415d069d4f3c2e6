"""A steady stream of jobs while readers hold snapshots open, one after the other and overlapping.

16 threads with 10 ms of work each; jobs come in small calls of ``enqueue_many``. Each reader opens a REPEATABLE READ transaction,
holds it, and opens the next at once; they are shifted against each other, so that there always is a snapshot as old as one
reader's patience. Backlog: jobs enqueued but not started, by the handlers' notes, each second; its growth is the median of the
last fifth less that of the first. Claims: p95 by the server's log, beside the same stream without readers.
"""

from __future__ import annotations

import statistics
import threading
import time
from bisect import bisect_right
from dataclasses import dataclass

from .claim import CLAIM
from .results import Bar, Row, Series, percentile
from .rig import Rig

TITLE = "A steady stream with long readers"

RUNS = 1


@dataclass(frozen=True)
class Size:
    minutes: float = 10
    base_minutes: float = 3
    rate: int = 800
    per_call: int = 10
    readers: int = 3
    reader_seconds: float = 120


QUICK = Size(minutes=0.035, base_minutes=0.02, rate=200, reader_seconds=0.5)


def read_on(rig: Rig, seconds: float, after: float, ended: threading.Event) -> None:
    """One reader: a snapshot, held; then the next."""
    ended.wait(after)
    while not ended.is_set():
        with rig.connect(autocommit=False) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            connection.execute("SELECT count(*) FROM pgjobs_worker")
            ended.wait(seconds)


def stream(size: Size, seconds: float) -> None:
    """Jobs at a steady rate; what a call took too long is caught up with."""
    from pgjobs import enqueue_many

    from .jobs import stamp

    began, sent = time.monotonic(), 0
    while (now := time.monotonic()) < began + seconds:
        if sent < (now - began) * size.rate:
            enqueue_many(stamp.prepare(sent=now, ms=10) for _ in range(size.per_call))
            sent += size.per_call
        else:
            time.sleep(0.002)


def backlog(notes: list[tuple[float, float]]) -> list[int]:
    """Jobs that were sent and not started, at each second."""
    sent, started = sorted(s for s, _ in notes), sorted(s for _, s in notes)
    seconds = int(sent[-1] - sent[0])
    return [bisect_right(sent, sent[0] + n) - bisect_right(started, sent[0] + n) for n in range(1, seconds + 1)]


def run(rig: Rig, size: Size, minutes: float, readers: int) -> tuple[list[int], list[float]]:
    """The backlog each second, and the milliseconds of each claim."""
    rig.empty()
    rig.settle()
    ended = threading.Event()
    shift = size.reader_seconds / max(readers, 1)
    some = [threading.Thread(target=read_on, args=(rig, size.reader_seconds, n * shift, ended)) for n in range(readers)]
    with rig.logging(log_min_duration_statement=0), rig.worker("--threads", 16):
        rig.wait_asleep()
        _, offset = rig.log_from()
        for thread in some:
            thread.start()
        stream(size, minutes * 60)
        text, _ = rig.log_from(offset)
        ended.set()
        for thread in some:
            thread.join()
    return backlog(rig.notes), [float(found) for found in CLAIM.findall(text)]


def measure(rig: Rig, size: Size) -> list[Row]:
    growth, waiting, with_readers, without = [], [], [], []
    for n in range(1, rig.runs + 1):
        _, claims = run(rig, size, size.base_minutes, 0)
        without.append(percentile(claims, 95))
        behind, claims = run(rig, size, size.minutes, size.readers)
        with_readers.append(percentile(claims, 95))
        fifth = max(1, len(behind) // 5)
        growth.append(statistics.median(behind[-fifth:]) - statistics.median(behind[:fifth]))
        waiting.append(max(behind))
        rig.say(f"run {n} of {rig.runs}: growth {growth[-1]:.0f} jobs, claim p95 {with_readers[-1]:.2f} ms")
    tenth = size.rate / 10
    return [
        Row(
            f"growth of the backlog in {size.minutes:g} minutes at {size.rate} jobs/s",
            Series("backlog", "jobs", growth),
            bar=Bar(tenth, at_most=True),
            note=f"no growth is: less than a tenth of a second's jobs ({tenth:g})",
        ),
        Row("the longest backlog", Series("backlog", "jobs", waiting)),
        Row(
            "claim p95",
            Series(f"{size.readers} readers", "ms", with_readers),
            Series("no readers", "ms", without),
            Bar(2.0, at_most=True, aim=1.2),
        ),
    ]
