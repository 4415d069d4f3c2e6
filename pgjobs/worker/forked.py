"""Processes that a handler forks (by multiprocessing, for example): copies of the worker that must not act as one.

A copy ends on SIGTERM as any process does, opens database connections of its own, keeps none of the worker's alive, and never
gets past its handler.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import traceback
import weakref
from typing import Any, NoReturn

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

_thread = threading.local()
generation = 0
"""Forks between this process and the one that was started. Asked after each job, for which the pid would be a system call."""


def _born() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_born)
_opened: list[weakref.ref[Any]] = []
_inherited: list[Any] = []
"""Kept, so that nobody says goodbye to the server on a connection that is the worker's."""


def watch() -> None:
    """Call once in a worker process, before it opens connections."""
    connection_created.connect(_note, dispatch_uid="pgjobs.worker.forked")
    os.register_at_fork(before=_hold_signals, after_in_parent=_let_signals, after_in_child=_disown)


def _note(sender: object, connection: BaseDatabaseWrapper, **_: object) -> None:
    if connection.vendor == "postgresql":
        _opened[:] = [one for one in _opened if one() is not None]
        _opened.append(weakref.ref(connection.connection))


def _hold_signals() -> None:
    """Until the new process has its own way to meet SIGTERM; here another thread takes what comes meanwhile."""
    _thread.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})


def _let_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _thread.mask)


def _disown() -> None:
    """In a process that was just forked."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _let_signals()
    nothing = os.open(os.devnull, os.O_RDWR)
    for one in _opened:
        raw = one()
        with contextlib.suppress(Exception):
            if raw is not None and not raw.closed:
                _inherited.append(raw)
                # Else the server would not learn of the worker's death while this process lives.
                os.dup2(nothing, raw.pgconn.socket, inheritable=False)
    os.close(nothing)
    _opened.clear()
    for connection in connections.all(initialized_only=True):
        _inherited.append(connection)
        if pools := getattr(connection, "_connection_pools", None):
            _inherited.extend(pools.values())  # their threads are the worker's
            pools.clear()
        del connections[connection.alias]


def leave() -> NoReturn:
    """Call in a ``finally`` when a handler has ended in another generation than it began in: this process goes no further."""
    error = sys.exc_info()[1]
    code = 0 if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code & 0xFF)
