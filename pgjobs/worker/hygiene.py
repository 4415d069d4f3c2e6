"""What surrounds each run: whatever a handler leaves behind in its thread or connections must not meet the next job.

A handler's connections stay open between jobs (with ``CONN_MAX_AGE = 0`` too: a connection for each job would cost more than
most jobs), so each is brought back to the session that it was when it was opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import select
import threading
from typing import Any

import psycopg
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg.pq import ConnStatus, TransactionStatus

_thread = threading.local()


def adopt_thread() -> dict[str, Session]:
    """Call once in a thread that runs handlers: its connections are watched from now on; they are in what is returned."""
    sessions: dict[str, Session] = {}
    _thread.sessions = sessions
    _thread.opened = False
    connection_created.connect(_opened, dispatch_uid="pgjobs.worker.hygiene")
    return sessions


class Session:
    """A connection as it was when it was opened, and whether anybody has used it since it was last cleaned."""

    def __init__(self, connection: BaseDatabaseWrapper, settings: list[tuple[str, str]]) -> None:
        self.raw = raw = connection.connection
        self.wrappers = list(connection.execute_wrappers)
        self.settings = settings
        self.role = connection.settings_dict["OPTIONS"].get("assume_role")
        self.touched = True
        make = getattr(raw.cursor, "pgjobs_make", raw.cursor)  # a pool gives the same connection out again and again

        def cursor(*args: Any, **kwargs: Any) -> Any:
            self.touched = True
            return make(*args, **kwargs)

        cursor.pgjobs_make = make  # type: ignore[attr-defined]
        raw.cursor = cursor  # whoever sends a statement, through Django or past it, comes by here


def _opened(sender: object, connection: BaseDatabaseWrapper, **_: object) -> None:
    sessions = getattr(_thread, "sessions", None)
    if sessions is None or connections[connection.alias] is not connection:
        return  # another thread, or a connection of the worker's own
    _thread.opened = True
    if connection.vendor != "postgresql":
        return
    raw = connection.connection
    with raw.cursor() as cursor:
        cursor.execute(
            "SELECT name, setting FROM pg_settings WHERE source = 'session' AND context IN ('user', 'superuser')"
        )
        settings = [tuple(row) for row in cursor.fetchall()]
    if not raw.autocommit:
        raw.rollback()
    sessions[connection.alias] = Session(connection, settings)
    if connection.settings_dict["OPTIONS"].get("pool") is None and connection.settings_dict["CONN_MAX_AGE"] == 0:
        connection.close_at = None  # keep it


def before() -> None:
    """Drop connections that died while nobody used them (a restarted server, an idle timeout)."""
    if not _thread.opened:
        return
    for connection in connections.all(initialized_only=True):
        raw = connection.connection
        if raw is not None and connection.vendor == "postgresql" and _has_died(raw):
            _discard(connection)


def _has_died(raw: Any) -> bool:
    """A look at the socket, without a round trip.

    An idle connection has nothing to read, unless the server says goodbye; what else there may be is no loss either.
    """
    try:
        return bool(
            raw.closed or raw.pgconn.status != ConnStatus.OK or select.select([raw.pgconn.socket], [], [], 0)[0]
        )
    except Exception:  # noqa: BLE001 - the socket is gone, one way or another
        return True


def after() -> None:
    """Undo what the handler left: open transactions, session settings, a running loop."""
    if asyncio._get_running_loop() is not None:
        asyncio._set_running_loop(None)  # left by a library that was never stopped; Django would refuse queries
    if not _thread.opened:
        return
    for connection in connections.all(initialized_only=True):
        try:
            _clean(connection)
        except Exception:  # noqa: BLE001 - what cannot be cleaned is thrown away
            _discard(connection)


def discard_all() -> None:
    """Throw this thread's connections away: after an interruption nobody knows what state they are in."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None or connection.in_atomic_block:
            _discard(connection)


def _clean(connection: BaseDatabaseWrapper) -> None:
    connection.queries_log.clear()  # DEBUG keeps every statement
    raw = connection.connection
    left_open = connection.in_atomic_block or connection.savepoint_ids or connection.run_on_commit
    if raw is None and not left_open:
        return
    if left_open or connection.vendor != "postgresql":
        _discard(connection)
        return
    sessions = getattr(_thread, "sessions", {})
    session = sessions.get(connection.alias)
    if session is None or session.raw is not raw or raw.closed or raw.pgconn.status != ConnStatus.OK:
        _discard(connection)
        return
    if raw.pgconn.transaction_status != TransactionStatus.IDLE or not raw.autocommit or not connection.autocommit:
        _discard(connection)
        return
    if session.touched:
        _reset(session)
        connection.execute_wrappers[:] = session.wrappers
    connection.close_if_unusable_or_obsolete()
    if connection.settings_dict["OPTIONS"].get("pool") is not None:
        connection.close()  # gives it back


def _reset(session: Session) -> None:
    """The session as it was opened, in one round trip."""
    parts = [
        "SET SESSION AUTHORIZATION DEFAULT; RESET ALL; CLOSE ALL; UNLISTEN *; SELECT pg_advisory_unlock_all(); DISCARD TEMP"
    ]
    values: list[str] = []
    for name, value in session.settings:
        parts.append("SELECT set_config(%s, %s, false)")
        values += [name, value]
    if session.role:
        parts.append("SELECT set_config('role', %s, false)")
        values.append(session.role)
    with psycopg.ClientCursor(session.raw) as cursor:
        cursor.execute("; ".join(parts), values)
    session.touched = False


def _discard(connection: BaseDatabaseWrapper) -> None:
    """Close it for good and forget Django's wrapper, with all that it remembers of transactions."""
    raw = connection.connection
    connection.run_on_commit.clear()
    connection.savepoint_ids.clear()
    connection.in_atomic_block = False
    connection.needs_rollback = False
    if raw is not None:
        with contextlib.suppress(Exception):
            raw.close()
    with contextlib.suppress(Exception):
        connection.close()
    with contextlib.suppress(Exception):
        del connections[connection.alias]
    getattr(_thread, "sessions", {}).pop(connection.alias, None)


def leave_thread() -> None:
    """Close what this thread opened; for the end of a thread."""
    discard_all()
