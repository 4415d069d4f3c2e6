"""An exception as text that can always be stored, whatever the exception's class, message or traceback holds."""

from __future__ import annotations

import traceback as tracebacks
from typing import NamedTuple

from ..payload import mend

LONGEST_ERROR = 5_000
LONGEST_TRACEBACK = 60_000
"""Characters kept of a message and of a traceback."""


class Failure(NamedTuple):
    """What is recorded of a failed attempt."""

    error_class: str
    error: str
    traceback: str


def describe(error: BaseException, *, skip: int = 0) -> Failure:
    """Class, message and traceback; the first ``skip`` frames (the worker's own) are left out. Never raises."""
    name = _class_name(error)
    return Failure(
        name, cut(_message(error, name), LONGEST_ERROR), cut(_traceback(error, name, skip), LONGEST_TRACEBACK)
    )


def cut(text: str, longest: int) -> str:
    """The text without what PostgreSQL cannot store, its middle left out when it is too long: both ends tell the most."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}\n… {len(text) - longest:,} characters left out …\n{text[-(longest // 2) :]}"
    return mend(text)


def _class_name(error: BaseException) -> str:
    try:
        kind = type(error)
        module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
        return cut(f"{module}{kind.__qualname__}", 250)
    except BaseException:  # noqa: BLE001 - a metaclass may do anything
        return "an exception without a usable name"


def _message(error: BaseException, name: str) -> str:
    short = name.rpartition(".")[2]
    try:
        text = str(error)
        return f"{short}: {text}" if text else short
    except BaseException as e:  # noqa: BLE001 - __str__ may do anything
        return f"{short} (its text could not be read: {type(e).__name__})"


def _traceback(error: BaseException, name: str, skip: int) -> str:
    try:
        told = tracebacks.TracebackException.from_exception(error, limit=-100, compact=True)
        if skip and len(told.stack) > skip and error.__traceback__ is not None:
            frames = error.__traceback__
            for _ in range(skip):
                if frames.tb_next is None:
                    break
                frames = frames.tb_next
            told.stack = tracebacks.StackSummary.extract(tracebacks.walk_tb(frames), limit=-100)
        return "".join(told.format())
    except BaseException as e:  # noqa: BLE001 - from here on nothing of the exception itself is used
        try:
            where = "".join(tracebacks.format_tb(error.__traceback__, limit=-50))
            return f"{where}{name} (the traceback could not be written in full: {type(e).__name__})"
        except BaseException:  # noqa: BLE001
            return f"{name} (without a traceback: it could not be written)"
