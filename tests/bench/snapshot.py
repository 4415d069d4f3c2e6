"""A drain while another session holds a REPEATABLE READ snapshot open, so that no dead row can be removed.

One worker runs all the time. It works off five backlogs (the churn), and then the one that is measured: with the snapshot open
since before the first of them, and without. The rate counts from the 20th percentile of the last backlog on.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from .results import Bar, Row
from .rig import Rig

TITLE = "Drain under a held snapshot"


@dataclass(frozen=True)
class Size:
    churn: int = 200_000
    jobs: int = 40_000


QUICK = Size(churn=3000, jobs=3000)

RATE = """
SELECT count(*) * 0.8 / extract(epoch FROM max(finished_at) - percentile_disc(0.2) WITHIN GROUP (ORDER BY finished_at))::float8
FROM pgjobs_job WHERE kind = 'noop' AND status = 'done' AND id > %s
"""


def drain(rig: Rig, size: Size, *, held: bool) -> float:
    """Jobs a second of the last backlog."""
    rig.empty()
    rig.settle()
    with contextlib.ExitStack() as stack:
        if held:
            holder = stack.enter_context(rig.connect(autocommit=False))
            holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            holder.execute("SELECT count(*) FROM pgjobs_job")
        stack.enter_context(rig.worker())
        rig.wait_asleep()
        for done in range(0, size.churn, size.jobs):
            rig.work_off(min(size.jobs, size.churn - done))
        return float(rig.query(RATE, rig.work_off(size.jobs)))


def measure(rig: Rig, size: Size) -> list[Row]:
    found = rig.in_turns(
        "jobs/s", without=lambda: drain(rig, size, held=False), held=lambda: drain(rig, size, held=True)
    )
    what = f"{size.jobs:,} jobs after {size.churn:,}, snapshot held"
    return [Row(what, found["held"], found["without"], Bar(0.70, aim=0.90))]
