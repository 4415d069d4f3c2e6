"""The supervisors and the processes that they fork."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent.parent
THREADS, PROCESSES = 4, 2


def children(pid: int) -> list[int]:
    """The processes that a process forked, and that still exist."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def gone(pid: int) -> bool:
    """Whether a process runs no more; a zombie does not run."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Supervisor:
    """One ``run_jobs``, in a process group of its own, whose output goes to a file."""

    def __init__(self, place: Path, number: int) -> None:
        self.log = place / f"supervisor-{number}.log"
        command = ["-m", "django", "run_jobs", "--processes", str(PROCESSES), "--threads", str(THREADS)]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", *command],
                cwd=BASE_DIR,
                env=os.environ | {"PGAPPNAME": "chaos handler"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.pid = self.process.pid
        self.stopping = False
        self.ever: set[int] = {self.pid}
        """It, and all the processes that it was seen to have."""

    @property
    def tree(self) -> list[int]:
        """It and its processes."""
        return [self.pid, *children(self.pid)]

    @property
    def running(self) -> bool:
        return self.process.poll() is None


class Fleet:
    """A few supervisors, replaced as they end."""

    def __init__(self, place: Path, size: int) -> None:
        self._place = place
        self._size = size
        self._lock = threading.Lock()
        self._over = False
        self.all: list[Supervisor] = []
        self.complaints: list[str] = []
        """Whatever was wrong with how one ended."""
        self.exits: list[tuple[str, int, frozenset[int]]] = []
        """Log, exit code, and processes of each that was told to stop."""
        self.gone: dict[int, float] = {}
        """Their processes that have ended, and when that was seen."""
        self._seen: set[int] = set()
        threading.Thread(target=self._count, name="census", daemon=True).start()

    def _count(self) -> None:
        """The census: who was there, and is gone."""
        while True:
            for one in list(self.all):
                one.ever.update(one.tree)
                self._seen.update(one.ever - self.gone.keys())
            for pid in [pid for pid in self._seen if gone(pid)]:
                self.gone[pid] = time.time()
                self._seen.discard(pid)
            time.sleep(0.02)

    def start(self) -> Supervisor:
        with self._lock:
            if self._over:
                raise RuntimeError("it is over")
            one = Supervisor(self._place, len(self.all) + 1)
            self.all.append(one)
        return one

    @property
    def working(self) -> list[Supervisor]:
        """Those that run, and were not told to stop."""
        return [one for one in self.all if one.running and not one.stopping]

    def choose(self, whom: int) -> Supervisor | None:
        some = self.working
        return some[whom % len(some)] if some else None

    def choose_worker(self, whom: int) -> int | None:
        one = self.choose(whom)
        some = children(one.pid) if one else []
        return some[(whom // 7) % len(some)] if some else None

    def fill(self) -> None:
        """Start as many as are missing."""
        while len(self.working) < self._size:
            self.start()

    def stop(self, one: Supervisor, seconds: float) -> None:
        """A deploy's half: SIGTERM, and wait for the end."""
        one.stopping = True
        one.process.send_signal(signal.SIGTERM)
        try:
            code = one.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.complaints.append(f"{one.log.name}: still runs {seconds:.0f} s after SIGTERM")
            return
        self.exits.append((one.log.name, code, frozenset(one.ever)))

    def kill(self, pids: list[int]) -> float:
        """SIGKILL, and the time at which all were gone."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while not all(gone(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.005)
        return time.time()

    def end(self) -> None:
        """Leave nothing running, whatever state it is in, and let the census see that."""
        with self._lock:
            self._over = True
        for one in self.all:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(one.pid, signal.SIGKILL)
            one.process.wait(30)
        deadline = time.monotonic() + 10
        while self._seen and time.monotonic() < deadline:
            time.sleep(0.02)
