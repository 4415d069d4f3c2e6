"""Claims whose answer was lost with its connection: jobs that the database reserved for us, and that nobody here knows of."""

from __future__ import annotations

import logging
import time

from django.db.backends.base.base import BaseDatabaseWrapper

from .. import store
from .held import HeldJobs

logger = logging.getLogger("pgjobs")

LOOKS = (0.0, 1.0)
"""Seconds after an error at which we look for such jobs: the server may have been told to claim, and not yet to stop."""


class LostAnswers:
    """Gives them back, attempt included; else they would wait for their lease to lapse. For the thread that claims."""

    def __init__(self, worker: str, held: HeldJobs) -> None:
        self._worker = worker
        self._held = held
        self._looks: list[float] = []

    def fear(self) -> None:
        """A claim has failed, and may have been done all the same."""
        now = time.monotonic()
        self._looks = [now + seconds for seconds in LOOKS]

    def pause(self) -> float:
        """Seconds until the next look."""
        return max(0.01, self._looks[0] - time.monotonic()) if self._looks else float("inf")

    @property
    def due(self) -> bool:
        """Whether it is time to look."""
        return bool(self._looks) and time.monotonic() >= self._looks[0]

    @property
    def feared(self) -> bool:
        """Whether there may be some."""
        return bool(self._looks)

    def look(self, connection: BaseDatabaseWrapper) -> None:
        """Give back what is there."""
        known = [held.job.id for held in self._held.snapshot()]  # first: what ends meanwhile is reserved no more
        outcomes = store.release_unknown(connection, self._worker, known)
        if outcomes:
            logger.info("%d jobs were claimed for us, and we never heard of it: given back", len(outcomes))
        if "busy" not in outcomes.values():
            self._looks.pop(0)
