"""The claim loop: how many jobs to take, and how long to sleep.

It takes as many jobs as there are free threads, and beyond that as much as is done in ``PREFETCH_MS`` by the measured run
time: quick jobs come in batches, slow ones one by one. It sleeps until the earliest of: an announcement, a free thread, the
next ``run_after``, the poll interval.
"""

from __future__ import annotations

import queue
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass

from django.db.backends.base.base import BaseDatabaseWrapper

from .. import store
from ..conf import Settings
from .held import Held, HeldJobs, Pool
from .reach import LINGER, Reach, Sleeper

MOST = 1000
"""Jobs that one claim takes at most."""

FEWEST_PAUSE = 0.02
"""Seconds until a job that is about to come due is looked for, at least."""

CAREFUL = 2.0
"""Seconds without prefetch after a claim brought jobs on their last attempt that nobody could start at once."""

NOISE = 0.02
"""Seconds that a quick job may take because its thread had to wait for others: that does not make it a slow one."""


class Wakes:
    """A bell that may be rung by any thread, and from within a signal handler (a lock could be held there already)."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._rung = False

    def ring(self) -> None:
        """End the sleep, or the next one."""
        if not self._rung:
            self._rung = True
            self._queue.put(None)

    def sleep(self, seconds: float) -> bool:
        """Sleep until it rings; whether it rang before ``seconds`` were over."""
        try:
            self._queue.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return False
        self._rung = False
        return True


class Pace:
    """How long jobs take here: a moving average of their run times in seconds, quick to learn that they are slow."""

    def __init__(self) -> None:
        self.average: float | None = None

    def saw(self, seconds: float) -> None:
        """One run ended."""
        if self.average is None:
            self.average = seconds
        else:
            slow = seconds > self.average and seconds > NOISE
            self.average += (seconds - self.average) * (0.2 if slow else 0.02)


@dataclass(frozen=True, slots=True)
class Served:
    """What a worker claims; None is all."""

    queues: Sequence[str] | None
    exclude_queues: Sequence[str]

    def __contains__(self, queue: object) -> bool:
        return (self.queues is None or queue in self.queues) and queue not in self.exclude_queues


class Intake:
    """How many jobs one place (the threads, or the event loop) has room for."""

    def __init__(self, pool: Pool, kinds: Sequence[str], capacity: int, held: HeldJobs, prefetch: float) -> None:
        self.pool = pool
        self.kinds = kinds
        self.pace = Pace()
        self._capacity = capacity
        self._held = held
        self._prefetch = prefetch
        self._careful_until = 0.0
        self.reach = Reach()
        self.low_water = 0
        """A buffer with fewer jobs is worth a look at whether to claim."""
        self.more = False
        """Whether there may be due jobs that were not claimed for lack of room: then a job that ends makes room for one."""

    @property
    def free(self) -> int:
        """Places where a job could start at once; below zero when some wait for one."""
        return self._capacity - self._held.running(self.pool) - self._held.buffered(self.pool)

    def extra(self) -> int:
        """Jobs to hold beyond those that run."""
        average = self.pace.average
        if average is None or not self._prefetch or time.monotonic() < self._careful_until:
            return 0
        if self._held.running(self.pool) >= self._capacity:
            now = time.monotonic()
            if all(now - h.since > self._prefetch for h in self._held.running_now() if h.pool is self.pool):
                return 0  # every place is on a long job: nothing will be done soon
        return min(int(self._prefetch * self._capacity / max(average, 1e-5)), MOST)

    def room(self) -> int:
        """How many jobs to claim now; 0 when there is no need yet."""
        free, extra = self.free, self.extra()
        self.low_water = extra // 2
        if free <= 0 and free + extra < extra / 2:
            return 0  # refill when half of the buffer is used up, not job by job
        return max(0, min(free + extra, MOST))

    def hold(self, jobs: Sequence[store.ClaimedJob]) -> tuple[list[Held], list[Held]]:
        """Take claimed jobs: those to start, and those to give back.

        A job on its last attempt must not be lost while it waits: such jobs go first, and start at once or go back.
        """
        free = max(self.free, 0)
        last = [job for job in jobs if job.attempt >= job.max_attempts]
        ahead = [*last[:free], *(job for job in jobs if job.attempt < job.max_attempts)] if last else jobs
        if last[free:]:
            self._careful_until = time.monotonic() + CAREFUL
        return self._held.take(ahead, self.pool), [Held(job, self.pool) for job in last[free:]]


class Claimer:
    """What the claim loop knows; :meth:`claim` is one turn of it."""

    def __init__(
        self,
        worker: str,
        served: Served,
        held: HeldJobs,
        settings: Settings,
        *,
        most: int | None,
        suspects: bool | None,
    ) -> None:
        self._worker = worker
        self._served = served
        self._held = held
        self._settings = settings
        self._left = most
        self._suspects = suspects
        self.wakes = Wakes()
        self._sleeper = Sleeper()

    @property
    def exhausted(self) -> bool:
        """Whether all jobs that this worker may run (``--max-jobs``) were claimed."""
        return self._left is not None and self._left <= 0

    def room(self, intake: Intake) -> int:
        """How many jobs to claim for a place now."""
        if not intake.kinds or (self._suspects and len(self._held)):
            return 0  # a suspect runs alone
        room = 1 if self._suspects else intake.room()
        return room if self._left is None else min(room, self._left)

    def claim(
        self, connection: BaseDatabaseWrapper, intake: Intake, room: int, *, doze: bool
    ) -> tuple[list[Held], list[Held], float | None]:
        """Claim up to ``room`` jobs for a place: those to start, those to give back; and in how many seconds the next comes
        due, as far as this claim saw.

        ``doze``: fall asleep when nothing is found.
        """
        session = connection.connection
        claim = store.claim(
            connection,
            room,
            self._worker,
            queues=self._served.queues,
            exclude_queues=self._served.exclude_queues,
            kinds=intake.kinds,
            lease=self._settings.LEASE,
            suspects=self._suspects,
            read=intake.reach.since(session),
            asleep=self._sleeper.in_session(session),
            doze=doze,
        )
        intake.reach.saw(claim, session)
        self._sleeper.saw(claim)
        if self._left is not None:
            self._left -= len(claim.jobs)
        return *intake.hold(claim.jobs), claim.due

    def given_back(self, count: int) -> None:
        """So many jobs were released unstarted: they do not count for ``--max-jobs``."""
        if self._left is not None:
            self._left += count

    def pause(self, found: int, due: float | None, *, listening: bool) -> float:
        """Seconds to sleep after claims that found fewer jobs than there was room for."""
        if found:  # such a claim does not say what comes due: the next one does
            pause = LINGER
        elif listening:
            pause = min(self._settings.LISTEN_POLL_INTERVAL, self._sleeper.nap())
        else:
            pause = self._settings.POLL_INTERVAL * random.uniform(1, 1.2)
        return pause if due is None else max(min(pause, FEWEST_PAUSE), min(pause, due))
