"""Finished jobs are removed when they are old enough, in small slices: ``PGJOBS["RETENTION"]``."""

from __future__ import annotations

from . import store
from .conf import Settings
from .store.calling import Connection

SLICE = 1000
"""Rows that one statement removes of a status."""


def prune_slice(connection: Connection, settings: Settings) -> bool:
    """Remove one slice of each status; whether there is more to remove now."""
    ages = {status: age for status, age in settings.RETENTION.items() if age is not None}
    return any(count >= SLICE for count in store.prune_old(connection, ages, batch=SLICE).values())
