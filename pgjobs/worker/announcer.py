"""Signals about ended jobs, sent by a thread of its own: a receiver may be slow, and delays nothing but other receivers."""

from __future__ import annotations

import contextvars
import logging
import queue
import threading
import time
from typing import Any

from django.dispatch import Signal

from .. import signals
from . import hygiene

logger = logging.getLogger("pgjobs")

MOST = 10_000
"""Signals that may wait; beyond that no more jobs are claimed. Those that are held go on: their leases must not lapse."""


class Announcer:
    """A queue and the thread that empties it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Signal, str, dict[str, Any]] | None] = queue.SimpleQueue()
        self._told = False
        self._thread = threading.Thread(target=self._run, name="pgjobs-announcer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def announce(self, signal: Signal, kind: str, **named: Any) -> None:
        """Send soon, if anybody listens."""
        if signal.receivers:
            self._queue.put((signal, kind, named))

    @property
    def full(self) -> bool:
        """Whether the receivers are so far behind that there should be no more to tell."""
        full = self._queue.qsize() >= MOST
        if full != self._told:
            self._told = full
            if full:
                logger.error("%d signals wait for slow receivers: no jobs are claimed until they are sent", MOST)
            else:
                logger.warning("the receivers of signals have caught up: jobs are claimed again")
        return full

    def stop(self, timeout: float) -> bool:
        """Send what waits, and end; whether it did within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        self._queue.put(None)
        self._thread.join(max(0.0, deadline - time.monotonic()))
        return not self._thread.is_alive()

    def _run(self) -> None:
        hygiene.adopt_thread()
        while (one := self._queue.get()) is not None:
            hygiene.before()
            signal, kind, named = one
            contextvars.Context().run(signals.send, signal, kind, **named)
            hygiene.after()
        hygiene.leave_thread()
