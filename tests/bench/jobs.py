"""The measured handlers. None of them touches the database."""

from __future__ import annotations

import functools
import os
import time

from pgjobs import job

from . import journal


@job
def noop(n: int = 0) -> None:
    """Nothing at all."""


@job
def nap(n: int = 0, ms: float = 2) -> None:
    """Work that waits for something else: holds its thread, needs no processor."""
    time.sleep(ms / 1000)


@job
def stamp(sent: float, ms: float = 0) -> None:
    """Notes when it started, beside when it was sent, by the machine's monotonic clock."""
    _journal(os.getpid()).note(sent, time.monotonic())
    if ms:
        time.sleep(ms / 1000)


@functools.cache
def _journal(pid: int) -> journal.Writer:
    """One a process: what was opened before a fork is not this process's."""
    return journal.Writer(os.environ[journal.VARIABLE])
