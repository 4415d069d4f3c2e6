"""Log lines that a handler writes, kept in case its attempt fails: they stand in the admin beside the traceback."""

from __future__ import annotations

import contextvars
import logging
from collections import deque

from ..payload import mend

LINES = 200
"""The latest lines of an attempt that are kept."""

LONGEST_LINE = 1_000
"""Characters kept of a line."""

lines: contextvars.ContextVar[deque[str] | None] = contextvars.ContextVar("pgjobs_log", default=None)


class Capture(logging.Handler):
    """Installed on the root logger while a worker runs; takes what the levels of the loggers let through."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))

    def handle(self, record: logging.LogRecord) -> bool:
        """Keep it; and what nobody else handles still goes where Python writes it when there is no handler at all."""
        last = logging.lastResort
        if last is not None and record.levelno >= last.level and not self._others(record.name):
            last.handle(record)
        return bool(super().handle(record))

    def _others(self, name: str) -> bool:
        """Whether a record of a logger meets any handler but this one."""
        logger: logging.Logger | None = logging.getLogger(name)
        while logger is not None:
            if any(handler is not self for handler in logger.handlers):
                return True
            logger = logger.parent if logger.propagate else None
        return False

    def emit(self, record: logging.LogRecord) -> None:
        kept = lines.get()
        if kept is None or record.name == "pgjobs" or record.name.startswith("pgjobs.worker"):
            return
        try:
            kept.append(self.format(record)[:LONGEST_LINE])
        except Exception as e:  # noqa: BLE001 - a record with a broken argument must not fail the job
            kept.append(f"(a log record of {record.name} could not be formatted: {type(e).__name__})")


def new() -> deque[str]:
    """Where the lines of one attempt go."""
    return deque(maxlen=LINES)


def text(kept: deque[str]) -> str:
    """The lines as they are stored."""
    return mend("\n".join(kept))
