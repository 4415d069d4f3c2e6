"""One ``enqueue()`` in a transaction of its own, beside a bare INSERT through psycopg.

The INSERT goes into a table with the indexes of any queue, prepared, and commits by itself. No worker runs. The second line is
the same INSERT into pgjobs' own table: what constraints, defaults and the notification cost, and what is left for Python.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from . import raw
from .results import Bar, Row
from .rig import Rig

TITLE = "One enqueue, one transaction"


@dataclass(frozen=True)
class Size:
    calls: int = 3000


QUICK = Size(calls=30)


def of_pgjobs(rig: Rig, size: Size) -> float:
    from .jobs import noop

    rig.empty()
    rig.settle()
    noop.enqueue(n=0)  # connected, and warm
    began = time.perf_counter()
    for n in range(size.calls):
        noop.enqueue(n=n)
    return size.calls / (time.perf_counter() - began)


def of_insert(rig: Rig, size: Size, table: str) -> float:
    if table == "raw_job":
        rig.query(raw.TABLE)
    else:
        rig.empty()
    rig.settle(table)
    statement = f"INSERT INTO {table} (kind, payload) VALUES (%s, %s)"
    with rig.connect(prepare_threshold=0) as connection:
        connection.execute(statement, ("noop", '{"n": 0}'))
        began = time.perf_counter()
        for n in range(size.calls):
            connection.execute(statement, ("noop", f'{{"n": {n}}}'))
        return size.calls / (time.perf_counter() - began)


def measure(rig: Rig, size: Size) -> list[Row]:
    found = rig.in_turns(
        "calls/s",
        enqueue=lambda: of_pgjobs(rig, size),
        bare_INSERT=lambda: of_insert(rig, size, "raw_job"),
        INSERT_into_pgjobs_job=lambda: of_insert(rig, size, "pgjobs_job"),
    )
    return [
        Row("enqueue()", found["enqueue"], found["bare_INSERT"], Bar(0.80, aim=0.95)),
        Row("plain INSERT into pgjobs_job", found["INSERT_into_pgjobs_job"], found["bare_INSERT"]),
    ]
