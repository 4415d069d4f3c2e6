"""The role that fires schedules: it sleeps until the next tick by the database's clock. Any number of workers may do so."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.db.backends.base.base import BaseDatabaseWrapper

from .. import signals, store
from ..api.enqueueing import Enqueued
from ..conf import Settings
from ..schedules.firing import Firing
from ..schedules.payloads import Payloads
from ..schedules.sync import Declarations
from .announcer import Announcer
from .connection import close
from .loop import Loop

SEEN_EVERY = 60.0
"""Seconds between looks at whose declarations are in force."""

STUCK_PAUSE = 0.25
"""Seconds until another look at what is due and could not be fired: a row that somebody holds, a payload that is made."""

EARLY = 0.02
"""Seconds by which two looks at the same tick may differ."""


class Ticker:
    """One loop on one connection, apart from the keeper's: neither retention nor the user's code delays a tick or a lease."""

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        settings: Settings,
        announcer: Announcer,
        *,
        listening: Callable[[], bool],
        died: Callable[[str, BaseException], None],
    ) -> None:
        self._settings = settings
        self._announcer = announcer
        self._listening = listening
        self._declarations = Declarations(settings)
        self._see_at = 0.0
        self._due_at: float | None = None
        """When the next tick is due, by the monotonic clock; None: no schedule is enabled."""
        self.loop = Loop("ticker", self.step, connection, died)
        self._firing = Firing(settings, Payloads(self.loop.wake), self._enqueued)

    def expect(self, seconds: float) -> None:
        """A beat found that a schedule has to be looked at in so many seconds; safe in any thread."""
        due_at = time.monotonic() + seconds
        if self._due_at is None or due_at < self._due_at - EARLY:
            self.loop.wake()

    def step(self, connection: BaseDatabaseWrapper) -> float:
        """Fire what is due; seconds until the next look."""
        self._see(connection)
        seconds = store.next_tick(connection)
        if seconds == 0:
            self._firing.step(connection)
            seconds = store.next_tick(connection)
            if seconds == 0:
                seconds = STUCK_PAUSE
        now = time.monotonic()
        self._due_at = None if seconds is None else now + seconds
        if seconds is None and self._declarations.state == "unknown":
            close(connection)  # nothing recurs here; a beat or a notification says when that changes
            return 3600.0
        polls = [self._see_at - now]
        if seconds is not None:
            polls.append(seconds)
            if not self._listening():
                polls.append(self._settings.POLL_INTERVAL)
        return max(0.0, min(polls))

    def _see(self, connection: BaseDatabaseWrapper) -> None:
        now = time.monotonic()
        if now >= self._see_at:
            done = self._declarations.step(connection)
            self._see_at = now + (SEEN_EVERY if done else 1.0)

    def _enqueued(self, job: Enqueued) -> None:
        self._announcer.announce(signals.job_enqueued, job.kind, job=job, attempt=0, exc_info=None)
