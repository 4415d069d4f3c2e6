"""The jobs that this process holds, and where each stands: the one piece of state that the roles share."""

from __future__ import annotations

import enum
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from ..store import ClaimedJob
from .board import Board, State

LEAST_WEIGHT = 16 * 1024
"""Bytes that a job with an outcome to be recorded takes at least, as far as :attr:`HeldJobs.overloaded` is concerned."""

MOST_WEIGHT = 64 * 2**20


class Stage(enum.Enum):
    """BUFFERED → RUNNING → ENDING → GONE; or BUFFERED/RUNNING → GONE, when it is released."""

    BUFFERED = enum.auto()
    RUNNING = enum.auto()
    ENDING = enum.auto()
    GONE = enum.auto()


BUFFERED, RUNNING, ENDING, GONE = Stage  # looking up a member of an enum takes longer than all else of a change
RETURNED, RAISED = State.RETURNED, State.RAISED


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

    stage = BUFFERED
    cancel = False
    lost = False
    progress: dict[str, Any] | None = None
    log: deque[str] | None = None
    """The latest lines that its handler logged."""
    deadline = float("inf")
    """When its time is up, by the monotonic clock."""
    told = ""
    """Why it was told to stop: ``timeout`` or ``cancel``."""
    told_at = 0.0
    interrupted_at = 0.0
    cancelled_at = 0.0
    runner: Runner | None = None
    place = -1
    """Its entry of the board."""
    weight = LEAST_WEIGHT
    """Bytes of what waits to be recorded of it, once it has ended."""

    def __init__(self, job: ClaimedJob, pool: Pool = Pool.THREADS) -> None:
        self.job = job
        self.pool = pool
        self.since = time.monotonic()
        """When it entered its stage."""
        self.lock = threading.Lock()
        """Of its stage, so that it is not both started and released. (With one lock for all jobs, a thread that has to let others
        run while it holds that lock makes all of them queue for it, from then on at every job.)"""


class HeldJobs:
    """All of them, by id. Who comes and goes is under the lock of all, a change of stage under the job's own, taken second."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._lock = threading.Lock()
        self._jobs: dict[int, Held] = {}
        # By pool. Adding to a set, taking out and counting are each one step of the interpreter.
        self._buffered: tuple[set[Held], set[Held]] = (set(), set())
        self._running: tuple[set[Held], set[Held]] = (set(), set())
        self._ending: set[Held] = set()
        self._heavy: set[Held] = set()
        """Of those that end, what weighs more than the least."""

    def buffered(self, pool: Pool) -> int:
        """Claimed, not started."""
        return len(self._buffered[pool])

    def running(self, pool: Pool) -> int:
        """In a handler."""
        return len(self._running[pool])

    @property
    def all_running(self) -> int:
        """In a handler, wherever."""
        return sum(map(len, self._running))

    @property
    def all_buffered(self) -> int:
        """Claimed and not started, for wherever."""
        return sum(map(len, self._buffered))

    @property
    def overloaded(self) -> bool:
        """Whether so much waits to be recorded that there should be no more of it: 4,096 outcomes, or 64 MiB of results."""
        heavy = sum(held.weight - LEAST_WEIGHT for held in list(self._heavy))
        return len(self._ending) * LEAST_WEIGHT + heavy >= MOST_WEIGHT

    def __len__(self) -> int:
        return len(self._jobs)

    def take(self, jobs: Sequence[ClaimedJob], pool: Pool = Pool.THREADS) -> list[Held]:
        """Hold claimed jobs; those to start. One that still runs here under an older lease takes over the new one."""
        taken = []
        with self._lock:
            for job in jobs:
                mine = self._jobs.get(job.id)
                if mine is not None and not self._replace(mine, job):
                    continue
                held = self._jobs[job.id] = Held(job, pool)
                taken.append(held)
            self._buffered[pool].update(taken)
        return taken

    def _replace(self, mine: Held, job: ClaimedJob) -> bool:
        """A job that is here was claimed anew: whether it is to be started; under the lock of all."""
        with mine.lock:
            if (
                mine.stage is not RUNNING
            ):  # its place in the buffer is passed over, or its outcome is just being recorded
                self._leave(mine)
                return True
            mine.job, mine.lost = job, False
            self._board.clear(mine.place)
            mine.place = self._board.put(job.id, job.lease, mine.deadline)
            return False

    def start(self, held: Held, runner: Runner) -> bool:
        """BUFFERED → RUNNING, its time limit counting from now; False when it was released meanwhile."""
        with held.lock:
            if held.stage is not BUFFERED:
                return False
            held.stage, held.runner = RUNNING, runner
            held.since = now = time.monotonic()
            job = held.job
            if job.timeout is not None:
                held.deadline = now + job.timeout
            held.place = self._board.put(job.id, job.lease, held.deadline)
            self._running[held.pool].add(held)  # first: whoever waits for the last one must not miss it
            self._buffered[held.pool].discard(held)
            return True

    def end(self, held: Held, *, returned: bool, weight: int = 0) -> float | None:
        """RUNNING → ENDING: the handler is over, its outcome (of ``weight`` bytes) is on its way; how many seconds it took, or
        None when it was released meanwhile.
        """
        now = time.monotonic()
        with held.lock:
            if held.stage is not RUNNING:
                return None
            took = now - held.since
            held.stage, held.since = ENDING, now
            self._board.mark(held.place, RETURNED if returned else RAISED)
            if weight > LEAST_WEIGHT:
                held.weight = weight
                self._heavy.add(held)
            self._ending.add(held)
            self._running[held.pool].discard(held)
            return took

    def drop(self, *some: Held) -> None:
        """Not ours any more, whatever their stage."""
        with self._lock:
            for held in some:
                if self._jobs.get(held.job.id) is held:
                    del self._jobs[held.job.id]
                    with held.lock:
                        self._leave(held)

    def drop_all(self, stage: Stage, *, older_than: float = 0.0) -> list[Held]:
        """Take out all of a stage that have been in it for so many seconds, for example to release them."""
        before = time.monotonic() - older_than
        some = []
        with self._lock:
            for held in [h for h in self._jobs.values() if h.stage is stage and h.since <= before]:
                with held.lock:
                    if held.stage is stage:
                        self._leave(held)
                        del self._jobs[held.job.id]
                        some.append(held)
        return some

    def put_back(self, some: Sequence[Held]) -> None:
        """Undo :meth:`drop_all` of what waits, when what was meant for it could not be done; the next one takes it out again."""
        with self._lock:
            for held in some:
                with held.lock:
                    held.since = float("-inf")
                    if self._jobs.setdefault(held.job.id, held) is held:
                        held.stage = BUFFERED
                        self._buffered[held.pool].add(held)

    def _leave(self, held: Held) -> None:
        """Whatever its stage → GONE; under the lock of all and its own."""
        if held.stage is ENDING:
            self._ending.discard(held)
            if held.weight > LEAST_WEIGHT:
                self._heavy.discard(held)
        else:
            self._buffered[held.pool].discard(held)
            self._running[held.pool].discard(held)
        self._board.clear(held.place)
        held.stage, held.place = GONE, -1

    def to_beat(self, lease: float) -> list[Held]:
        """Those whose lease is to be extended: all, but what has been ending for a whole lease and cannot be recorded."""
        now = time.monotonic()
        with self._lock:
            return [h for h in self._jobs.values() if not h.lost and not (h.stage is ENDING and now - h.since > lease)]

    def get(self, id: int) -> Held | None:  # noqa: A002 - the column's name
        """The job of an id, if it is here."""
        return self._jobs.get(id)

    def running_now(self) -> list[Held]:
        """Those in a handler, wherever."""
        return [held for some in self._running for held in list(some)]

    def snapshot(self) -> list[Held]:
        """All, at this moment."""
        with self._lock:
            return list(self._jobs.values())
