"""Time limits, and cancelling what runs.

A handler whose time is up is interrupted at once; one that somebody cancelled learns it by ``ctx.cancelled`` first, and is
interrupted TIMEOUT_GRACE later. One that does not stop within another TIMEOUT_GRACE is *stuck*: its attempt is recorded all the
same, and the process claims no more, finishes its other jobs and ends.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from ..conf import Settings
from .held import Held, HeldJobs
from .running import extra

logger = logging.getLogger("pgjobs")

LOOK = 0.1
"""Seconds between looks at the running jobs."""

AGAIN = 1.0
"""Seconds until a handler that swallowed the interruption is interrupted again."""


class Limiter:
    """One thread that watches the clock."""

    def __init__(
        self,
        held: HeldJobs,
        settings: Settings,
        *,
        stuck: Callable[[Held], None],
        died: Callable[[str, BaseException], None],
    ) -> None:
        self._held = held
        self._settings = settings
        self._stuck = stuck
        self._died = died
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pgjobs-limiter", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End; whether it did within ``timeout`` seconds."""
        self._stop.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK):
                for held in self._held.running_now():
                    self._look(held, time.monotonic())
        except BaseException as e:  # noqa: BLE001
            self._died("limiter", e)

    def _look(self, held: Held, now: float) -> None:
        grace = self._settings.TIMEOUT_GRACE
        if held.cancel and not held.cancelled_at:
            held.cancelled_at = now
        if not held.told:
            if now >= held.deadline:
                held.told = "timeout"
            elif held.cancelled_at and now >= held.cancelled_at + grace:
                held.told = "cancel"
            else:
                return
            held.told_at = now
            logger.warning("job %d %s: told to stop (%s)", held.job.id, held.job.kind, held.told, extra=extra(held.job))
        elif now >= held.told_at + grace:
            logger.error(
                "job %d %s: does not stop; its process ends as soon as its other jobs have",
                held.job.id,
                held.job.kind,
                extra=extra(held.job),
            )
            self._stuck(held)
            return
        elif now < held.interrupted_at + AGAIN:
            return
        held.interrupted_at = now
        if held.runner is not None:
            held.runner.interrupt(held)
