"""Sessions: connections of their own, each with a thread that runs its statements."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.conftest import Connect
from tests.waiting import wait_until_blocked

Rows = list[tuple[Any, ...]]


class Session:
    """One backend. ``run`` waits for the answer; ``start`` does not, and ``blocks`` waits until it waits for a lock."""

    def __init__(self, connection: psycopg.Connection[Any], observer: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self._observer = observer
        self._thread = ThreadPoolExecutor(1)

    def start(self, sql: str, *params: object) -> Future[Rows]:
        return self._thread.submit(self._execute, sql, params)

    def run(self, sql: str, *params: object) -> Rows:
        return self.start(sql, *params).result(30)

    def blocks(self, sql: str, *params: object) -> Future[Rows]:
        """Start a statement; it has to wait for somebody's lock."""
        future = self.start(sql, *params)
        wait_until_blocked(self._observer, self.connection.info.backend_pid)
        assert not future.done()
        return future

    def begin(self, how: str = "") -> None:
        self.run(f"BEGIN {how}")

    def commit(self) -> None:
        self.run("COMMIT")

    def rollback(self) -> None:
        self.run("ROLLBACK")

    def close(self) -> None:
        self._thread.shutdown(wait=False)

    def _execute(self, sql: str, params: tuple[object, ...]) -> Rows:
        cursor = self.connection.execute(sql, params or None)
        return cursor.fetchall() if cursor.description else []


Sessions = Callable[..., Session]


@pytest.fixture
def session(transactional_db: None, connect: Connect) -> Iterator[Sessions]:
    """Opens sessions, autocommit until they ``begin``; options are those of the ``connect`` fixture."""
    observer = connect()
    opened: list[Session] = []

    def open_one(**options: Any) -> Session:
        opened.append(Session(connect(**options), observer))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


@pytest.fixture
def a(session: Sessions) -> Session:
    return session()


@pytest.fixture
def b(session: Sessions) -> Session:
    return session()


@pytest.fixture
def c(session: Sessions) -> Session:
    return session()
