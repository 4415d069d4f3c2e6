"""Pick-up when the transaction stays open for a while after the insert, and the worker has fallen asleep meanwhile.

Whatever woke or did not wake the worker was decided when the row was inserted; it can be claimed only after the commit. Measured
from the commit's answer to the start of the handler, for ``enqueue()`` and for a plain INSERT, over many transactions that
overlap, so that each commits into a worker that sleeps.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.waiting import wait_until

from .results import Bar, Row, Series, percentile
from .rig import Rig

TITLE = "Pick-up after a late commit"


@dataclass(frozen=True)
class Size:
    samples: int = 100
    open_seconds: float = 3
    every_ms: int = 300


QUICK = Size(samples=3, open_seconds=0.4)


def by_enqueue(name: float, seconds: float, rig: Rig) -> None:
    """``enqueue()`` in a transaction of Django."""
    from django.db import connection, transaction

    from .jobs import stamp

    with transaction.atomic():
        stamp.enqueue(sent=name)
        time.sleep(seconds)
    connection.close()


def by_insert(name: float, seconds: float, rig: Rig) -> None:
    """Plain SQL, as any program would."""
    with rig.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO pgjobs_job (kind, payload) VALUES ('stamp', %s)", [json.dumps({"sent": name})])
        time.sleep(seconds)


def run(rig: Rig, size: Size, store: Callable[[float, float, Rig], None]) -> list[float]:
    """Milliseconds from commit to start, of each job. A job's ``sent`` is its number here."""
    committed: dict[float, float] = {}

    def one(number: float) -> None:
        store(number, size.open_seconds, rig)
        committed[number] = time.monotonic()

    rig.empty()
    some = [threading.Thread(target=one, args=(float(n),)) for n in range(size.samples)]
    for thread in some:
        thread.start()
        time.sleep(size.every_ms / 1000)
    for thread in some:
        thread.join()
    wait_until(lambda: len(rig.notes) == size.samples, "all jobs to start", 60)
    return [max(0.0, (started - committed[number]) * 1000) for number, started in rig.notes]


def measure(rig: Rig, size: Size) -> list[Row]:
    found: dict[str, list[list[float]]] = {"enqueue()": [], "plain INSERT": []}
    for n in range(1, rig.runs + 1):
        with rig.worker():
            rig.wait_asleep()
            for what, store in (("enqueue()", by_enqueue), ("plain INSERT", by_insert)):
                found[what].append(run(rig, size, store))
                rig.say(f"{what}, run {n} of {rig.runs}: p99 {percentile(found[what][-1], 99):.1f} ms")
    rows = []
    for what, some in found.items():
        p50 = Series("commit to start", "ms", [percentile(one, 50) for one in some])
        p99 = Series("commit to start", "ms", [percentile(one, 99) for one in some])
        rows += [Row(f"{what}, p50", p50), Row(f"{what}, p99", p99, bar=Bar(1000, at_most=True, aim=100))]
    return rows
