"""Signals about ended jobs, sent by a thread of its own: a receiver may be slow, and delays nothing but other receivers."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from typing import Any

from django.dispatch import Signal

from .. import signals
from . import hygiene

MOST = 10_000
"""Signals that may wait; beyond that the completer waits too."""


class Announcer:
    """A queue and the thread that empties it."""

    def __init__(self) -> None:
        self._queue: queue.Queue[tuple[Signal, str, dict[str, Any]] | None] = queue.Queue(MOST)
        self._thread = threading.Thread(target=self._run, name="pgjobs-announcer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def announce(self, signal: Signal, kind: str, **named: Any) -> None:
        """Send soon, if anybody listens."""
        if signal.receivers:
            self._queue.put((signal, kind, named))

    def stop(self, timeout: float) -> bool:
        """Send what waits, and end; whether it did within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            return False
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
