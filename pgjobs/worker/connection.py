"""The worker's own connections to PostgreSQL, apart from those that handlers use."""

from __future__ import annotations

import contextlib
import copy

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import ServerBindingCursor

WATCHFUL = {
    # A dead peer is noticed in seconds, not in the two hours that TCP takes by itself (libpq's names; seconds, and ms).
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

SHORTEST_STATEMENT = 30_000
"""A role's limit of a statement under this (ms) is meant for web requests, not for a worker's batches."""

LIMITS = ("statement_timeout", "lock_timeout", "transaction_timeout")

WANTED = {
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "idle_session_timeout": "0",  # a listener is idle by nature
    "DateStyle": "ISO",  # psycopg reads no other
    "IntervalStyle": "postgres",
}


def dedicated(alias: str, role: str) -> BaseDatabaseWrapper:
    """A connection of a role's own: never from a pool, never closed by age, to be used by one thread at a time."""
    shared = connections[alias]
    settings = copy.deepcopy(shared.settings_dict)
    settings |= {"CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False, "ATOMIC_REQUESTS": False, "AUTOCOMMIT": True}
    options = settings["OPTIONS"] = {**WATCHFUL, **settings.get("OPTIONS", {})}
    options.pop("pool", None)
    options.setdefault("application_name", f"pgjobs {role}")
    own = type(shared)(settings, alias)
    own.inc_thread_sharing()
    own.queries_log.clear()
    return own


def ready(connection: BaseDatabaseWrapper) -> BaseDatabaseWrapper:
    """The connection, open and with the session settings that the worker's statements rely on.

    Only what differs is set: behind a pooler a SET would reach other clients.
    """
    if connection.connection is None:
        connection.connect()
        with connection.cursor() as cursor:
            cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", [[*LIMITS, *WANTED]])
            for name, value in cursor.fetchall():
                if name in LIMITS:
                    wanted = str(SHORTEST_STATEMENT) if 0 < int(value) < SHORTEST_STATEMENT else value
                else:
                    wanted = WANTED[name]
                if value.partition(",")[0] != wanted:
                    cursor.execute("SELECT set_config(%s, %s, false)", (name, wanted))
    connection.queries_log.clear()  # DEBUG keeps every statement
    return connection


def keep_plans(connection: BaseDatabaseWrapper) -> None:
    """Have each statement of an open connection parsed and planned once, from now on until it is closed.

    Only for a session that is known to be this connection's own: behind a transaction pooler the next statement may reach
    another one, which has no plan of it. Django's default, text without plans, is for those.
    """
    raw = connection.connection
    if raw.prepare_threshold is None:
        raw.cursor_factory = ServerBindingCursor
        raw.prepare_threshold = 0


def close(connection: BaseDatabaseWrapper) -> None:
    """Close, whatever state it is in."""
    with contextlib.suppress(Exception):
        connection.close()
    connection.connection = None
