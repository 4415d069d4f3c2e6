"""The role that fires schedules: it sleeps until the next tick by the database's clock. Any number of workers may do so."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from django.db.backends.base.base import BaseDatabaseWrapper

from .. import signals, store
from ..api.enqueueing import Enqueued
from ..conf import Settings
from ..schedules.firing import Firing
from ..schedules.payloads import Payloads
from ..schedules.sync import Declarations
from ..store.calling import TRANSIENT
from .announcer import Announcer
from .connection import close
from .loop import Loop, away, sqlstate

logger = logging.getLogger("pgjobs")

SEEN_EVERY = 60.0
"""Seconds between looks at whose declarations are in force."""

STUCK_PAUSE = 0.25
"""Seconds until another look at what is due and could not be fired: a row that somebody holds, a payload that is made."""

IDLE = 3600.0
"""Seconds of sleep where nothing recurs; a beat or a notification says when that changes."""

DRAIN_PATIENCE = 6.0
"""Seconds that a draining worker waits for such ones, before it runs what there is."""

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
        self._loop = Loop("ticker", self._turn, connection, died)
        self._lock = threading.Lock()
        self._started = False
        self._ended = False
        self._firing = Firing(settings, Payloads(self._loop.wake), self._enqueued, self._stopping)
        self._watch: Callable[[], None] = lambda: None

    def start(self, connection: BaseDatabaseWrapper, *, drain: bool, watch: Callable[[], None]) -> None:
        """Bring the schedules of the code up to date, on the caller's connection; then fire what is due, from now on, or
        just once (``drain``; ``watch`` is called meanwhile, as the watchdog of the caller's thread wants it).

        A thread and a connection of its own come with the first schedule.
        """
        if drain:
            self._watch = watch
            deadline = time.monotonic() + DRAIN_PATIENCE
            while self.step(connection) == STUCK_PAUSE and time.monotonic() < deadline:
                time.sleep(STUCK_PAUSE)
            self._ended = True
            return
        self._see(connection)
        if self._declarations.state != "unknown" or store.next_tick(connection) is not None:
            self.wake()

    def wake(self) -> None:
        """Look at the schedules now; safe in any thread."""
        with self._lock:
            if not self._started and not self._ended:
                self._started = True
                self._loop.start()
        self._loop.wake()

    def stop(self, timeout: float) -> bool:
        """End after the step under way; whether it did within ``timeout`` seconds."""
        with self._lock:
            self._ended = True
        return not self._started or self._loop.stop(timeout)

    def expect(self, seconds: float) -> None:
        """A beat found that a schedule has to be looked at in so many seconds; safe in any thread."""
        due_at = time.monotonic() + seconds
        if self._due_at is None or due_at < self._due_at - EARLY:
            self.wake()

    def step(self, connection: BaseDatabaseWrapper) -> float:
        """Fire what is due; seconds until the next look."""
        self._see(connection)
        seconds = store.next_tick(connection)
        while seconds == 0 and not self._ended:
            moved = self._firing.step(connection)
            seconds = store.next_tick(connection)
            if seconds == 0 and not moved:
                seconds = STUCK_PAUSE
        now = time.monotonic()
        self._due_at = None if seconds is None else now + seconds
        if seconds is None and self._declarations.state == "unknown":
            return IDLE
        polls = [self._see_at - now]
        if seconds is not None:
            polls.append(seconds)
            if not self._listening():
                polls.append(self._settings.POLL_INTERVAL)
        return max(0.0, min(polls))

    def _stopping(self) -> bool:
        self._watch()
        return self._ended

    def _turn(self, connection: BaseDatabaseWrapper) -> float:
        pause = self.step(connection)
        if pause == IDLE:
            close(connection)
        return pause

    def _see(self, connection: BaseDatabaseWrapper) -> None:
        now = time.monotonic()
        if now < self._see_at:
            return
        try:
            done = self._declarations.step(connection)
        except Exception as e:
            if away(e) or sqlstate(e) in TRANSIENT:
                raise
            # What the code says is wrong must not keep what is in the table from being fired.
            logger.error("the schedules of the code could not be stored", exc_info=e)
            done = True
        self._see_at = now + (SEEN_EVERY if done else 1.0)

    def _enqueued(self, job: Enqueued) -> None:
        self._announcer.announce(signals.job_enqueued, job.kind, job=job, attempt=0, exc_info=None)
