"""How a statement is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

Connection = BaseDatabaseWrapper


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
