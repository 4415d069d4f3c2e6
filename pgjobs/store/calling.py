"""How a statement is sent."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

Connection = BaseDatabaseWrapper

TRANSIENT = ("40001", "40P01", "55P03")
"""Serialization failure, deadlock, lock not available: the same statement again, on the same connection."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""Times that come up as microseconds count from here: aware and in UTC, whatever ``USE_TZ`` and the session's zone are."""


def first_argument(notify: bool) -> str:
    """The placeholder of the first argument of a function that inserts jobs; without ``notify`` one that silences the rest of
    the transaction. (Arguments are evaluated before the call, so its INSERT already sees the setting.)
    """
    return "%s" if notify else "CASE WHEN set_config('pgjobs.notify', 'off', true) = 'off' THEN %s END"


def rows(connection: Connection, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """All rows of one statement."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        found: list[tuple[Any, ...]] = cursor.fetchall()
    return found


def value(connection: Connection, sql: str, params: Sequence[Any] = ()) -> Any:
    """The first column of the only row."""
    with connection.cursor() as cursor:
        cursor.execute(sql, params)
        row = cursor.fetchone()
    return None if row is None else row[0]
