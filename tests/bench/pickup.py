"""From the call of ``enqueue()`` to the start of the handler, on a worker that has nothing to do.

Beside it the floor: a transaction of INSERT and NOTIFY, and a process that listens and claims one row by a statement of its own.
Both are sent from this process, one job at a time, and received in another; the worker runs in between jobs as it likes.
"""

from __future__ import annotations

import json
import random
import time
from dataclasses import dataclass

from tests.waiting import wait_until

from . import raw
from .results import Bar, Row, Series, percentile
from .rig import Rig

TITLE = "Pick-up on an idle worker"


@dataclass(frozen=True)
class Size:
    samples: int = 200
    pause_ms: int = 50


QUICK = Size(samples=10, pause_ms=20)

WARM_UP = 5
"""Jobs that are sent first and not counted: connections open, statements are prepared."""


def rest(size: Size) -> None:
    """The time between two jobs: enough for everybody to fall asleep, and no beat that something else could fall in with."""
    time.sleep(size.pause_ms / 1000 * random.uniform(1, 1.5))


def of_pgjobs(rig: Rig, size: Size) -> list[float]:
    """Milliseconds of each job."""
    from .jobs import stamp

    rig.empty()
    with rig.worker():
        rig.wait_asleep()
        for _ in range(WARM_UP + size.samples):
            stamp.enqueue(sent=time.monotonic())
            rest(size)
        wait_until(lambda: len(rig.notes) == WARM_UP + size.samples, "all jobs to start")
    return [(started - sent) * 1000 for sent, started in sorted(rig.notes)[WARM_UP:]]


def of_raw(rig: Rig, size: Size) -> list[float]:
    """The floor."""
    rig.query(raw.TABLE)
    with raw.start("wait", rig.dsn, WARM_UP + size.samples) as process, rig.connect() as connection:
        assert process.stdout is not None
        assert process.stdout.readline() == "listening\n"
        for _ in range(WARM_UP + size.samples):
            raw.send(connection)
            rest(size)
        return [seconds * 1000 for seconds in json.loads(process.stdout.readline())[WARM_UP:]]


def measure(rig: Rig, size: Size) -> list[Row]:
    ours, floors = [], []
    for run in range(1, rig.runs + 1):
        ours.append(of_pgjobs(rig, size))
        floors.append(of_raw(rig, size))
        rig.say(
            f"run {run} of {rig.runs}: p50 {percentile(ours[-1], 50):.2f} ms, floor {percentile(floors[-1], 50):.2f} ms"
        )
    return [
        Row(
            f"p{percent}",
            Series("pgjobs", "ms", [percentile(one, percent) for one in ours]),
            Series("commit, NOTIFY, claim, commit", "ms", [percentile(one, percent) for one in floors]),
            Bar(1.5, at_most=True),
        )
        for percent in (50, 95)
    ]
