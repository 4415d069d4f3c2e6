"""One executor thread's place for a handler, and how a handler in it is made to stop.

An exception can be raised in another thread (``PyThreadState_SetAsyncExc``), at its next bytecode. It is set, and withdrawn,
under the slot's lock, so that it reaches the handler that it is meant for, or nobody.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from typing import Any

from .held import Held


class Interrupted(BaseException):
    """Raised in a handler whose time is up, or that somebody cancelled. Not an Exception: handlers rarely catch it by mistake."""


def _raise_in(thread: int, exception: type[BaseException]) -> None:
    """Raise in a thread at its next bytecode, instead of what was not raised yet."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(exception))


class Slot:
    """A thread that runs one handler at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Held | None = None
        self._interrupted = False
        self._thread = 0
        self._sessions: dict[str, Any] = {}

    def adopt(self, sessions: dict[str, Any]) -> None:
        """Call in the thread itself; ``sessions`` are its open connections, by alias."""
        self._thread = threading.get_ident()
        self._sessions = sessions

    def arm(self, held: Held) -> None:
        """From here on the handler may be interrupted."""
        self._held = held

    def disarm(self) -> bool:
        """From here on it may not; whether it was interrupted. Never raises what was meant for the handler."""
        ours = hit = False
        while True:
            try:
                with self._lock:
                    self._held = None
                    if self._interrupted and not ours:
                        # Replaced, and met here. Before Python 3.13 one that is withdrawn leaves the interpreter looking for
                        # it for ever: all threads get slower, and a profiled or traced one hangs.
                        ours = True
                        _raise_in(self._thread, Interrupted)
                        while True:
                            pass
                    hit, self._interrupted = hit or self._interrupted, False
                return hit
            except Interrupted:
                hit = True

    def interrupt(self, held: Held) -> None:
        """Cancel the statements that the handler waits for, and raise in it."""
        with self._lock:
            if self._held is not held:
                return
            for session in list(self._sessions.values()):
                with contextlib.suppress(Exception):
                    session.raw.cancel_safe(timeout=1)
            self._interrupted = True
            _raise_in(self._thread, Interrupted)
