"""How every loop of a worker meets errors.

One log line for each change of state, a growing pause between tries, a fresh connection. What is no trouble of the database
is a fault of the program: it is logged in full and tried again, and a loop that cannot go on takes the process down.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

import psycopg
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from ..store.calling import TRANSIENT
from .connection import close, ready

logger = logging.getLogger("pgjobs")

AWAY = (DatabaseError, InterfaceError, psycopg.Error, OSError)
WRONG = (ProgrammingError, DataError, IntegrityError, NotSupportedError)
"""Errors of a database that is away or unwell; and those among them that waiting does not mend."""

SHORTEST, LONGEST = 0.05, 1.5
"""Pauses between tries, in seconds: a database that returns is used again within two seconds."""

FAULTS = 10
"""So many errors in a row that are no trouble of the database take the process down."""


class Trouble:
    """The pauses of one loop, and whether its state was logged already."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.tries = 0
        self.faults = 0
        self.since = 0.0

    def over(self) -> None:
        """The last step worked."""
        if self.tries:
            logger.warning("%s: works again after %.1f s", self.name, time.monotonic() - self.since)
            self.tries = 0
        self.faults = 0

    def met(self, error: Exception, connection: BaseDatabaseWrapper | None) -> float:
        """The last step failed: how long to pause. Raises the error when there is no point in going on."""
        if sqlstate(error) in TRANSIENT:
            return random.uniform(0.01, 0.05)
        if connection is not None:
            close(connection)
        if not away(error):
            self.faults += 1
            logger.error("%s: an error that is no trouble of the database", self.name, exc_info=error)
            if self.faults >= FAULTS:
                raise error
        elif not self.tries:
            self.since = time.monotonic()
            logger.warning(
                "%s: the database does not answer as it should (%s); trying again", self.name, first_line(error)
            )
        self.tries += 1
        return min(LONGEST, SHORTEST * 2.0 ** min(self.tries, 10)) * random.uniform(0.7, 1.0)


def away(error: BaseException) -> bool:
    """Whether an error says that the database is away or unwell, not that a statement is wrong."""
    return isinstance(error, AWAY) and not isinstance(error, WRONG)


def first_line(error: BaseException) -> str:
    """The class and the first line of an error, for a log line."""
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


def sqlstate(error: BaseException) -> str | None:
    """PostgreSQL's code of an error, also when Django wraps it."""
    for one in (error, error.__cause__):
        code = getattr(one, "sqlstate", None)
        if code:
            return str(code)
    return None


class Loop:
    """A thread that repeats a step until it is told to stop.

    ``step(connection)`` answers how long to sleep, in seconds; :meth:`wake` cuts the sleep short.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[BaseDatabaseWrapper], float],
        connection: BaseDatabaseWrapper,
        died: Callable[[str, BaseException], None],
    ) -> None:
        self.name = name
        self._step = step
        self._connection = connection
        self._died = died
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"pgjobs-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Do the next step now."""
        self._wake.set()

    def stop(self, timeout: float) -> bool:
        """End after the step under way; whether it did within ``timeout`` seconds."""
        self._stopping = True
        self._wake.set()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        trouble = Trouble(self.name)
        try:
            while not self._stopping:
                self._wake.clear()
                try:
                    pause = self._step(ready(self._connection))
                    trouble.over()
                except Exception as e:  # noqa: BLE001 - every error of a loop is met in one place
                    pause = trouble.met(e, self._connection)
                    threading.Event().wait(
                        pause
                    )  # not to be cut short: a broken database gets no more tries for more work
                    continue
                self._wake.wait(pause)
        except BaseException as e:  # noqa: BLE001
            self._died(self.name, e)
        finally:
            close(self._connection)
