"""Wakes the claim loop when jobs are announced. Everything is right without it: pick-up is then within the poll interval."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable

from django.db.backends.base.base import BaseDatabaseWrapper

from . import loop
from .connection import close, ready

logger = logging.getLogger("pgjobs")

CHANNEL = "pgjobs"
SCHEDULES = "pgjobs_schedule"
"""Where jobs are announced, by queue; and edits of schedules."""

QUIET = 60.0
"""Seconds without a notification after which the connection is tried with a statement."""

SELF_TEST = 2.0
"""Seconds in which a notification to ourselves has to arrive."""

CHECK = 0.5
"""Seconds between looks at whether to stop."""


class Listener:
    """One thread and one autocommit connection that does nothing but listen."""

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        sender: BaseDatabaseWrapper,
        serves: Callable[[str], bool],
        notified: Callable[[], None],
        edited: Callable[[], None],
        died: Callable[[str, BaseException], None],
    ) -> None:
        self._connection = connection
        self._sender = sender
        self._serves = serves
        self._notified = notified
        self._edited = edited
        self._died = died
        self._stop = threading.Event()
        self._given_up = False
        self.listening = False
        """Whether announcements arrive, so that the claim loop may poll seldom."""
        self._thread = threading.Thread(target=self._run, name="pgjobs-listener", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End; whether it did within ``timeout`` seconds."""
        self._stop.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        trouble = loop.Trouble("listener")
        try:
            while not self._stop.is_set() and not self._given_up:
                try:
                    self._listen(trouble)
                except Exception as e:  # noqa: BLE001
                    self.listening = False
                    self._notified()  # the claim loop polls from now on
                    self._stop.wait(trouble.met(e, self._connection))
        except BaseException as e:  # noqa: BLE001
            self._died("listener", e)
        finally:
            self.listening = False
            close(self._connection)

    def _listen(self, trouble: loop.Trouble) -> None:
        """Listen until told to stop, or until an error."""
        raw = ready(self._connection).connection
        raw.execute(f"LISTEN {CHANNEL}")
        raw.execute(f"LISTEN {SCHEDULES}")
        if not self._hears_itself(raw):
            logger.warning(
                "listen unavailable, polling: notifications do not arrive on this connection (a transaction pooler?)"
            )
            self._given_up = True
            self._notified()
            return
        trouble.over()
        self.listening = True
        self._notified()  # what came while nobody listened; a beat finds what was edited meanwhile
        quiet = 0.0
        while not self._stop.is_set():
            heard = False
            for notice in raw.notifies(timeout=CHECK, stop_after=1):
                heard = True
                if notice.channel == SCHEDULES:
                    self._edited()
                elif notice.channel == CHANNEL and (not notice.payload or self._serves(notice.payload)):
                    self._notified()
            quiet = 0.0 if heard else quiet + CHECK
            if quiet >= QUIET:
                raw.execute("SELECT 1")
                quiet = 0.0

    def _hears_itself(self, raw: object) -> bool:
        """Notify ourselves from another connection: behind a transaction pooler LISTEN is accepted, and hears nothing."""
        channel = f"pgjobs_{uuid.uuid4().hex}"
        raw.execute(f"LISTEN {channel}")  # type: ignore[attr-defined]
        try:
            with ready(self._sender).cursor() as cursor:
                cursor.execute("SELECT pg_notify(%s, '')", (channel,))
        finally:
            close(self._sender)
        heard = any(notice.channel == channel for notice in raw.notifies(timeout=SELF_TEST, stop_after=1))  # type: ignore[attr-defined]
        raw.execute(f"UNLISTEN {channel}")  # type: ignore[attr-defined]
        return heard
