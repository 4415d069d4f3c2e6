"""What is old enough is removed in small slices: ended jobs (``PGJOBS["RETENTION"]``), ticks (``TICK_RETENTION``)."""

from __future__ import annotations

from . import store
from .conf import Settings
from .store.calling import Connection

SLICE = 1000
"""Rows that one statement removes of a status."""


def prune_slice(connection: Connection, settings: Settings) -> bool:
    """Remove one slice of each status, and of ticks; whether there is more to remove now."""
    ages = {status: age for status, age in settings.RETENTION.items() if age is not None}
    more = any(count >= SLICE for count in store.prune_old(connection, ages, batch=SLICE).values())
    return store.prune_ticks(connection, settings.TICK_RETENTION, batch=SLICE) >= SLICE or more
