"""One worker process before and after very many jobs: what it has grown by, and its proportional share of memory (PSS)."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from .results import Bar, Row, Series
from .rig import Rig

TITLE = "Memory of a worker process"

RUNS = 1


@dataclass(frozen=True)
class Size:
    warm_up: int = 5000
    jobs: int = 200_000
    at_once: int = 20_000


QUICK = Size(warm_up=100, jobs=400, at_once=200)


def mib(pid: int, what: str) -> float:
    """A line of the kernel's summary of a process's memory."""
    found = re.search(rf"^{what}:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found
    return int(found[1]) / 1024


def measure(rig: Rig, size: Size) -> list[Row]:
    if not Path("/proc/self/smaps_rollup").exists():
        rig.skipped.append("this system has no /proc/PID/smaps_rollup")
        return []
    growth, private, total, supervisors = [], [], [], []
    for run in range(1, rig.runs + 1):
        rig.empty()
        with rig.worker() as worker:
            rig.wait_asleep()
            rig.work_off(size.warm_up)
            [pid] = worker.children
            before = mib(pid, "Rss")
            for _ in range(0, size.jobs, size.at_once):
                rig.work_off(size.at_once)
            time.sleep(1)
            assert worker.children == [pid]
            growth.append(mib(pid, "Rss") - before)
            total.append(mib(pid, "Pss"))
            private.append(mib(pid, "Rss"))
            supervisors.append(mib(worker.process.pid, "Pss"))
        rig.say(f"run {run} of {rig.runs}: grew by {growth[-1]:.1f} MiB to {private[-1]:.1f}, PSS {total[-1]:.1f}")
    return [
        Row(f"growth of RSS over {size.jobs:,} jobs", Series("growth", "MiB", growth), bar=Bar(10, at_most=True)),
        Row("PSS after them", Series("PSS", "MiB", total), bar=Bar(70, at_most=True)),
        Row("RSS after them", Series("RSS", "MiB", private)),
        Row("PSS of its supervisor, beside it", Series("PSS", "MiB", supervisors)),
    ]
