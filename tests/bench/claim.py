"""The claims of a running worker, with little and with much in the table.

A worker runs jobs that hold a thread for 2 ms each, so that its claims are of one size; the server logs how long each statement
took (``log_min_duration_statement``: a line a batch, which disturbs nothing). What counts is the median claim between the second
and the eighth tenth of as many due jobs as in the base case: the first sweep after a start is left out. The same worker, the same
due jobs, each time; what differs is what lies in front of them, or beside.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from .results import Bar, Row, Series
from .rig import Rig

TITLE = "The median claim of a running worker"

CLAIM = re.compile(
    r"^pgjobs claimer\|LOG:  duration: ([\d.]+) ms  (?:statement|execute [^:]*): .*\bpgjobs_claim\w*\(", re.M
)


@dataclass(frozen=True)
class Size:
    due: int = 10_000
    mountain: int = 500_000
    many: int = 1_000_000


QUICK = Size(due=400, mountain=1000, many=2000)


def claims(rig: Rig, begin: int, end: int) -> list[float]:
    """Milliseconds of each claim of a worker while it works off jobs ``begin`` to ``end`` of those that are due."""
    first, last = rig.nth_due(begin), rig.nth_due(end)
    with rig.worker():
        rig.wait_done(first)
        _, offset = rig.log_from()
        rig.wait_done(last)
        text, _ = rig.log_from(offset)
    return [float(found) for found in CLAIM.findall(text)]


def scenario(rig: Rig, size: Size, prepare: Callable[[], None], sizes: list[float]) -> float:
    """The median claim after ``prepare()`` has filled the table; ``sizes`` takes note of how many jobs a claim brought."""
    rig.empty()
    prepare()
    rig.settle()
    begin, end = size.due // 5, size.due * 4 // 5
    found = claims(rig, begin, end)
    if not found:
        raise RuntimeError("the server logged no claims")
    sizes.append((end - begin) / len(found))
    return statistics.median(found)


def measure(rig: Rig, size: Size) -> list[Row]:
    def due() -> None:
        rig.fill(size.due, "nap")

    def many() -> None:
        rig.fill(size.many, "nap")

    def future() -> None:
        due()
        rig.fill(size.mountain, "nap", ahead="1 day", priority=100)

    def paused() -> None:
        due()
        rig.fill(size.mountain, "nap", queue="'a paused queue'", priority=100)
        rig.query("SELECT pgjobs_pause('queue', 'a paused queue')")

    def unknown() -> None:
        due()
        rig.fill(size.mountain, "stranger", priority=100)

    def queues() -> None:
        rig.fill(size.due, "nap", queue="'queue ' || mod(n, 20)")

    sizes: dict[str, list[float]] = {}

    def at(prepare: Callable[[], None]) -> Callable[[], float]:
        return lambda: scenario(rig, size, prepare, sizes.setdefault(prepare.__name__, []))

    with rig.logging(log_min_duration_statement=0):
        found = rig.in_turns(
            "ms",
            base=at(due),
            many=at(many),
            future=at(future),
            paused=at(paused),
            unknown=at(unknown),
            queues=at(queues),
        )
    base = found.pop("base")
    names = {
        "many": f"{size.many:,} pending",
        "future": f"{size.mountain:,} future jobs of the highest priority in front",
        "paused": f"{size.mountain:,} jobs of a paused queue",
        "unknown": f"{size.mountain:,} jobs of a kind that it cannot run in front",
        "queues": "20 queues",
    }
    return [
        Row(
            names[name],
            series,
            Series(f"{size.due:,} pending", base.unit, base.samples),
            Bar(1.5, at_most=True, aim=1.1),
            f"{statistics.median(sizes[name]):.0f} jobs a claim, {statistics.median(sizes['due']):.0f} in the base case",
        )
        for name, series in found.items()
    ]
