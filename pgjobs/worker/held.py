"""The jobs that this process holds, and where each stands: the one piece of state that the roles share."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Sequence
from typing import Any, Protocol

from ..store import ClaimedJob
from .board import Board, State

LEAST_WEIGHT = 16 * 1024
"""Bytes that a job with an outcome to be recorded takes at least, as far as :attr:`HeldJobs.overloaded` is concerned."""

MOST_WEIGHT = 64 * 2**20


class Stage(enum.Enum):
    """BUFFERED → RUNNING → ENDING → gone; or BUFFERED/RUNNING → gone, when it is released."""

    BUFFERED = enum.auto()
    RUNNING = enum.auto()
    ENDING = enum.auto()


class Pool(enum.IntEnum):
    """Where jobs run: each place has a capacity of its own."""

    THREADS = 0
    LOOP = 1
    """The event loop, for ``async def`` handlers."""


class Runner(Protocol):
    """Where a job runs: a thread's slot, or the event loop."""

    def interrupt(self, held: Held) -> None:
        """Make the handler stop, as well as that is possible; never a neighbour, never the next job."""


class Held:
    """One job in this process."""

    __slots__ = (
        "cancel", "cancelled_at", "deadline", "interrupted_at", "job", "log", "lost", "place", "pool", "progress", "runner",
        "since", "stage", "told", "told_at", "weight",
    )  # fmt: skip

    def __init__(self, job: ClaimedJob, pool: Pool = Pool.THREADS) -> None:
        self.job = job
        self.pool = pool
        self.stage = Stage.BUFFERED
        self.since = time.monotonic()
        """When it entered its stage."""
        self.cancel = False
        self.lost = False
        self.progress: dict[str, Any] | None = None
        self.log: list[str] = []
        self.deadline = float("inf")
        """When its time is up, by the monotonic clock."""
        self.told = ""
        """Why it was told to stop: ``timeout`` or ``cancel``."""
        self.told_at = 0.0
        self.interrupted_at = 0.0
        self.cancelled_at = 0.0
        self.runner: Runner | None = None
        self.place = -1
        self.weight = 0
        """What waits to be recorded of it, once it has ended."""


class HeldJobs:
    """All of them, by id. Every change of stage happens under one lock, so that no job is both started and released."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._lock = threading.Lock()
        self._jobs: dict[int, Held] = {}
        self._buffered = [0, 0]
        self._running = [0, 0]
        self._weight = 0

    def buffered(self, pool: Pool) -> int:
        """Claimed, not started."""
        return self._buffered[pool]

    def running(self, pool: Pool) -> int:
        """In a handler."""
        return self._running[pool]

    @property
    def all_running(self) -> int:
        """In a handler, wherever."""
        return sum(self._running)

    @property
    def all_buffered(self) -> int:
        """Claimed and not started, for wherever."""
        return sum(self._buffered)

    @property
    def overloaded(self) -> bool:
        """Whether so much waits to be recorded that there should be no more of it: 4,096 outcomes, or 64 MiB of results."""
        return self._weight >= MOST_WEIGHT

    def __len__(self) -> int:
        return len(self._jobs)

    def take(self, job: ClaimedJob, pool: Pool = Pool.THREADS) -> Held | None:
        """Hold a claimed job; None when it still runs here under an older lease, which it takes over: nothing to start."""
        with self._lock:
            mine = self._jobs.get(job.id)
            if mine is not None and mine.stage is Stage.RUNNING:
                mine.job, mine.lost = job, False
                self._board.clear(mine.place)
                mine.place = self._board.put(job.id, job.lease, mine.deadline)
                return None
            if mine is not None:  # its place in the buffer is passed over, or its outcome is just being recorded
                self._count(mine, -1)
                self._board.clear(mine.place)
                mine.place = -1
            held = self._jobs[job.id] = Held(job, pool)
            self._buffered[pool] += 1
            return held

    def start(self, held: Held, runner: Runner) -> bool:
        """BUFFERED → RUNNING, its time limit counting from now; False when it was released meanwhile."""
        with self._lock:
            if self._jobs.get(held.job.id) is not held or held.stage is not Stage.BUFFERED:
                return False
            held.stage, held.since, held.runner = Stage.RUNNING, time.monotonic(), runner
            if held.job.timeout is not None:
                held.deadline = held.since + held.job.timeout
            held.place = self._board.put(held.job.id, held.job.lease, held.deadline)
            self._buffered[held.pool] -= 1
            self._running[held.pool] += 1
            return True

    def end(self, held: Held, *, returned: bool, weight: int = 0) -> bool:
        """RUNNING → ENDING: the handler is over, its outcome (of ``weight`` bytes) is on its way; False when it was released
        meanwhile.
        """
        with self._lock:
            if self._jobs.get(held.job.id) is not held or held.stage is not Stage.RUNNING:
                return False
            self._running[held.pool] -= 1
            held.stage, held.since, held.weight = Stage.ENDING, time.monotonic(), max(weight, LEAST_WEIGHT)
            self._weight += held.weight
            self._board.mark(held.place, State.RETURNED if returned else State.RAISED)
            return True

    def drop(self, *some: Held) -> None:
        """Not ours any more, whatever their stage."""
        with self._lock:
            for held in some:
                if self._jobs.get(held.job.id) is held:
                    del self._jobs[held.job.id]
                    self._count(held, -1)
                    self._board.clear(held.place)

    def drop_all(self, stage: Stage, *, older_than: float = 0.0) -> list[Held]:
        """Take out all of a stage that have been in it for so many seconds, for example to release them."""
        now = time.monotonic()
        with self._lock:
            some = [h for h in self._jobs.values() if h.stage is stage and now - h.since >= older_than]
            for held in some:
                del self._jobs[held.job.id]
                self._count(held, -1)
                self._board.clear(held.place)
                held.place = -1
        return some

    def put_back(self, some: Sequence[Held]) -> None:
        """Undo :meth:`drop_all` of what waits, when what was meant for it could not be done; the next one takes it out again."""
        with self._lock:
            for held in some:
                held.since = float("-inf")
                if self._jobs.setdefault(held.job.id, held) is held:
                    self._count(held, 1)

    def _count(self, held: Held, by: int) -> None:
        if held.stage is Stage.ENDING:
            self._weight += by * held.weight
        elif held.stage is Stage.RUNNING:
            self._running[held.pool] += by
        else:
            self._buffered[held.pool] += by

    def to_beat(self, lease: float) -> list[Held]:
        """Those whose lease is to be extended: all, but what has been ending for a whole lease and cannot be recorded."""
        now = time.monotonic()
        with self._lock:
            return [
                h for h in self._jobs.values() if not h.lost and not (h.stage is Stage.ENDING and now - h.since > lease)
            ]

    def get(self, id: int) -> Held | None:  # noqa: A002 - the column's name
        """The job of an id, if it is here."""
        return self._jobs.get(id)

    def snapshot(self) -> list[Held]:
        """All, at this moment."""
        with self._lock:
            return list(self._jobs.values())
