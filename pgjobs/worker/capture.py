"""Log lines that a handler writes, kept in case its attempt fails: they stand in the admin beside the traceback."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from ..payload import mend

LINES = 200
"""The latest lines of an attempt that are kept."""

LONGEST_LINE = 1_000
"""Characters kept of a line."""


class Keeps(Protocol):
    """Something that keeps the lines of one attempt."""

    log: deque[str] | None
    """None until the first one."""


keeper: contextvars.ContextVar[Keeps | None] = contextvars.ContextVar("pgjobs_log", default=None)
"""Whose lines are written here."""


Factory = Callable[..., logging.LogRecord]

_format = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
_lock = threading.Lock()
_users = 0
_installed: list[Factory] = []
"""Python's factory of records, and ours around it."""


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """While a worker runs: every record that a logger's level lets through passes by here.

    By the factory of records, not by a handler: a handler on the root logger would silence Python's last resort, which prints
    warnings where a project has configured nothing, and it would miss loggers that do not propagate.
    """
    global _users
    with _lock:
        _users += 1
        if _users == 1:
            make = logging.getLogRecordFactory()
            factory = functools.partial(_make_record, make)
            logging.setLogRecordFactory(factory)
            _installed[:] = [make, factory]
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if (
                not _users and logging.getLogRecordFactory() is _installed[1]
            ):  # else somebody wrapped it: it stays, idle
                logging.setLogRecordFactory(_installed[0])


def _make_record(make: Factory, *args: Any, **options: Any) -> logging.LogRecord:
    record = make(*args, **options)
    by = keeper.get()
    if by is not None and _users and record.name != "pgjobs" and not record.name.startswith("pgjobs.worker"):
        try:
            line = _format.format(record)[:LONGEST_LINE]
        except Exception as e:  # noqa: BLE001 - a record with a broken argument must not fail the job
            line = f"(a log record of {record.name} could not be formatted: {type(e).__name__})"
        if by.log is None:
            by.log = deque(maxlen=LINES)
        by.log.append(line)
        record.exc_text = None  # other formatters write it their own way
    return record


def text(by: Keeps) -> str:
    """The lines as they are stored; a stray thread of the handler may still write some."""
    return "" if by.log is None else mend("\n".join(list(by.log)))
