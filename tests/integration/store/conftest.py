# ruff: noqa: A002 - parameters are named like the columns
"""Second connections: one that listens, one that holds rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.db import connection

from tests.conftest import Connect

END = "(the end)"


@pytest.fixture
def heard(transactional_db: None, connect: Connect) -> Callable[[], list[str]]:
    """Answers the payloads that a listener, as a sleeping worker is one, has heard since the last time, in order."""
    listener = connect()
    listener.execute("LISTEN pgjobs")
    listener.execute("SELECT pg_advisory_lock_shared(b.class, b.id) FROM pgjobs_bell() b")

    def since() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify('pgjobs', %s)", [END])  # notifications come in the order of commits
        payloads = []
        for notification in listener.notifies(timeout=20):
            if notification.payload == END:
                return payloads
            payloads.append(notification.payload)
        raise AssertionError("the listener hears nothing")

    return since


Hold = Callable[..., Callable[[], None]]


@pytest.fixture
def hold_row(transactional_db: None, connect: Connect) -> Iterator[Hold]:
    """Have somebody's open transaction lock a row: ``release = hold_row(id, "FOR UPDATE")``.

    Meanwhile a statement of the test that waits for a lock is an error.
    """
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1s'")

    def hold(id: int, how: str = "FOR UPDATE", table: str = "pgjobs_job") -> Callable[[], None]:
        holder = connect(autocommit=False)
        assert holder.execute(f"SELECT 1 FROM {table} WHERE id = %s {how}", [id]).fetchone()  # noqa: S608
        return holder.rollback

    yield hold
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")
