"""The beat: extend our leases, learn who asked to cancel what, return what dead workers held. And retention, in slices."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence

from django.db.backends.base.base import BaseDatabaseWrapper

from .. import signals, store
from ..conf import Settings
from ..retention import prune_slice
from .announcer import Announcer
from .held import Held, HeldJobs
from .loop import Loop
from .running import extra

logger = logging.getLogger("pgjobs")

SLACK = 0.05
"""Seconds after a lease has lapsed at which it is looked at."""

PRUNE_EVERY = 300.0
"""Seconds between passes of retention, give or take a fifth."""

PRUNE_FIRST = (3.0, 20.0)
"""The first pass comes so many seconds after the start: a worker that is restarted often does it too."""


class Reaped:
    """The job of a reaped row, as far as signals and logs need it."""

    def __init__(self, event: store.Event) -> None:
        self.id, self.kind, self.queue, self.attempt = event.id, event.kind, event.queue, event.attempts


class Keeper:
    """One loop on one connection; any worker's keeper does the same work, and rows decide who does what."""

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        who: store.Beat,
        held: HeldJobs,
        settings: Settings,
        announcer: Announcer,
        *,
        reaped: Callable[[], None],
        suspects: Callable[[], None],
        tick: Callable[[float], None],
        died: Callable[[str, BaseException], None],
    ) -> None:
        self._who = who
        self._held = held
        self._settings = settings
        self._announcer = announcer
        self._reaped = reaped
        self._suspects = suspects
        self._tick = tick
        self._prune_at = time.monotonic() + random.uniform(*PRUNE_FIRST)
        self.stopping = False
        self.loop = Loop("keeper", self._step, connection, died)

    def _step(self, connection: BaseDatabaseWrapper) -> float:
        began = time.monotonic()
        pause = self._beat(connection)
        if time.monotonic() >= self._prune_at and not self.stopping:
            more = prune_slice(connection, self._settings)
            self._prune_at = time.monotonic() + (0.2 if more else PRUNE_EVERY * random.uniform(0.8, 1.2))
        due = min(began + pause, self._prune_at)
        return max(0.0, due - time.monotonic())

    def _beat(self, connection: BaseDatabaseWrapper) -> float:
        """One beat; seconds until the next."""
        held = self._held.to_beat(self._settings.LEASE)
        events = store.beat(
            connection,
            self._who,
            ids=[h.job.id for h in held],
            leases=[h.job.lease for h in held],
            lease=self._settings.LEASE,
            stopping=self.stopping,
        )
        by_id = {h.job.id: h for h in held}
        pause = self._settings.HEARTBEAT
        for event in events:
            match event.event:
                case "cancel":
                    self._cancel(by_id[event.id or 0])
                case "lost":
                    self._lose(by_id[event.id or 0])
                case "reaped":
                    self._tell(event)
                case "expired":
                    logger.info("%d pending jobs expired", event.attempts)
                case "suspects":
                    self._suspects()
                case "tick":
                    self._tick(event.seconds or 0.0)
                case "next" if event.seconds is not None:
                    # Sooner, when somebody's lease lapses sooner than the next beat.
                    pause = min(pause, max(event.seconds, 0.0) + SLACK)
        if any(event.event == "reaped" for event in events):
            self._reaped()
        return pause

    def _cancel(self, held: Held) -> None:
        if not held.cancel:
            held.cancel = True
            logger.info("job %d %s: somebody asked to cancel it", held.job.id, held.job.kind, extra=extra(held.job))

    def _lose(self, held: Held) -> None:
        """Another worker may run it: its handler is told, and what is only buffered is not started."""
        current = self._held.get(held.job.id)
        if current is not held:
            return  # it ended between the reading of the list and the beat
        held.lost = True
        logger.warning("job %d %s: its lease was lost", held.job.id, held.job.kind, extra=extra(held.job))

    def _tell(self, event: store.Event) -> None:
        job = Reaped(event)
        if event.status == "dead":
            logger.error(
                "job %s %s: dead, its worker %s was lost in attempt %s", job.id, job.kind, event.worker, job.attempt
            )
            self._announcer.announce(signals.job_dead, str(job.kind), job=job, attempt=job.attempt, exc_info=None)
        else:
            logger.warning(
                "job %s %s: %s again, its worker %s was lost in attempt %s",
                job.id,
                job.kind,
                event.status,
                event.worker,
                job.attempt,
            )


def names(of: Sequence[str] | None) -> Sequence[str]:
    """A list of names for people; None is all of them."""
    return () if of is None else of
