"""When a process makes room for a new one."""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from pathlib import Path


class Recycle:
    """Limits of a process, each up to a tenth lower than given, so that processes do not go together.

    ``rss`` is MiB of memory, ``lifetime`` seconds; None is no limit.
    """

    def __init__(self, jobs: int | None, rss: int | None, lifetime: float | None) -> None:
        less = 1 - random.random() / 10
        self._jobs = None if jobs is None else max(1, round(jobs * less))
        self._rss = None if rss is None else rss * less
        self._lifetime = None if lifetime is None else lifetime * less
        self._born = time.monotonic()
        self._looked = 0.0

    def reason(self, jobs: int) -> str:
        """Why it is time, after so many jobs; empty while it is not."""
        now = time.monotonic()
        if self._jobs is not None and jobs >= self._jobs:
            return f"{jobs} jobs"
        if self._lifetime is not None and now - self._born >= self._lifetime:
            return f"{now - self._born:.0f} s old"
        # A limit that the bare process already exceeds must not keep it from working: it does a job at least.
        if self._rss is not None and jobs and now - self._looked >= 1:
            self._looked = now
            if (size := memory()) >= self._rss:
                return f"{size:.0f} MiB of memory"
        return ""


def memory() -> float:
    """MiB of memory that this process holds now; the most it ever held where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (2**20 if sys.platform == "darwin" else 2**10)
