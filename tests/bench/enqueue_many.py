"""``enqueue_many`` of jobs from a generator, beside a bare COPY of as many rows from one.

Memory: what the call needs beyond the handles that it returns, at its peak (tracemalloc, in a run that is not timed), for all
rows beside a quarter of them. Flat is 1.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from . import raw
from .results import Bar, Row, Series
from .rig import Rig

TITLE = "Many jobs at once"


@dataclass(frozen=True)
class Size:
    rows: int = 100_000


QUICK = Size(rows=6000)


def prepared(count: int) -> Iterator[Any]:
    from .jobs import noop

    return (noop.prepare(n=n) for n in range(count))


def of_pgjobs(rig: Rig, size: Size) -> float:
    from pgjobs import enqueue_many

    rig.empty()
    rig.settle()
    began = time.perf_counter()
    handles = enqueue_many(prepared(size.rows))
    seconds = time.perf_counter() - began
    assert len(handles) == size.rows
    return size.rows / seconds


def of_copy(rig: Rig, size: Size) -> float:
    rig.query(raw.TABLE)
    rig.settle("raw_job")
    with rig.connect() as connection:
        began = time.perf_counter()
        with connection.cursor().copy("COPY raw_job (kind, payload) FROM STDIN") as copy:
            for n in range(size.rows):
                copy.write_row(("noop", f'{{"n": {n}}}'))
        return size.rows / (time.perf_counter() - began)


def beside_handles(rig: Rig, rows: int) -> float:
    """MiB that a call needs at its peak, without what it returns."""
    from pgjobs import enqueue_many

    rig.empty()
    gc.collect()
    tracemalloc.start()
    try:
        handles = enqueue_many(prepared(rows))
        gc.collect()
        kept, peak = tracemalloc.get_traced_memory()
        assert len(handles) == rows
        return (peak - kept) / 2**20
    finally:
        tracemalloc.stop()


def measure(rig: Rig, size: Size) -> list[Row]:
    found = rig.in_turns("rows/s", enqueue_many=lambda: of_pgjobs(rig, size), bare_COPY=lambda: of_copy(rig, size))
    beside_handles(rig, 10)
    whole, quarter = beside_handles(rig, size.rows), beside_handles(rig, size.rows // 4)
    return [
        Row(f"{size.rows:,} rows", found["enqueue_many"], found["bare_COPY"], Bar(0.50, aim=0.90)),
        Row(
            "memory besides the handles",
            Series("all rows", "MiB", [whole]),
            Series("a quarter of them", "MiB", [quarter]),
            Bar(1.25, at_most=True, aim=1.0),
        ),
    ]
