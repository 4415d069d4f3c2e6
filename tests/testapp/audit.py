"""The audit trail: one autocommit connection a process, apart from Django's."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

import psycopg
from django.db import connections

from pgjobs.api.context import JobContext

from .models import Audit

NAME = "testapp-audit"
"""The application name of these connections, so that tests that count a worker's own can tell them apart."""

_lock = threading.Lock()
_connection: tuple[int, psycopg.Connection[Any]] | None = None


def connect() -> psycopg.Connection[Any]:
    """A new autocommit connection to the database that Django uses here."""
    parameters = connections["default"].get_connection_params()
    parameters.pop("cursor_factory", None)
    parameters.pop("context", None)
    return psycopg.connect(**parameters | {"autocommit": True, "application_name": NAME})


def record(event: str, ctx: JobContext | None = None, data: object = None) -> None:
    """Write one row, now and for good. A connection that broke is replaced once."""
    row = (
        ctx.id if ctx else None,
        ctx.attempt if ctx else None,
        event,
        None if data is None else json.dumps(data),
        os.getpid(),
        threading.get_ident() % 2**62,
    )
    insert = "INSERT INTO testapp_audit (job_id, attempt, event, data, pid, thread) VALUES (%s, %s, %s, %s, %s, %s)"
    with _lock:
        try:
            _current().execute(insert, row)
        except psycopg.OperationalError:
            _close()
            _current().execute(insert, row)


def events(job_id: int | None = None) -> list[str]:
    """The names of what happened, in order; of one job, or of all."""
    found = Audit.objects.order_by("id")
    if job_id is not None:
        found = found.filter(job_id=job_id)
    return list(found.values_list("event", flat=True))


def close() -> None:
    """Close this process's connection; the next record opens another."""
    with _lock:
        _close()


def _current() -> psycopg.Connection[Any]:
    global _connection
    if _connection is None or _connection[0] != os.getpid() or _connection[1].closed:  # not that of a parent process
        _connection = (os.getpid(), connect())
    return _connection[1]


def _close() -> None:
    global _connection
    if _connection is not None and _connection[0] == os.getpid():
        _connection[1].close()
    _connection = None
