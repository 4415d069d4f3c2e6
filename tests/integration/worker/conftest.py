"""A worker in the test's process, on the test's database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.db.backends.utils import CursorWrapper

from tests.waiting import wait_until
from tests.worker_harness import Handlers, Workers, worker_backends, worker_threads


@pytest.fixture
def workers(transactional_db: None) -> Iterator[Workers]:
    """Makes workers. Afterwards none runs, and none left a thread, a connection or a reservation behind."""
    some, before = Workers(), worker_threads()
    yield some
    some.close()
    try:
        wait_until(lambda: set(worker_threads()) <= set(before), "the end of the worker's threads", 10)
        wait_until(lambda: not worker_backends(), "the end of the worker's connections", 10)
    except AssertionError as error:
        raise AssertionError(f"{error}: {worker_threads()} {worker_backends()}") from None


@pytest.fixture
def handlers() -> Iterator[Handlers]:
    """Registers handlers for the time of the test."""
    some = Handlers()
    yield some
    some.forget()


class Statements(list[tuple[str, str]]):
    """(thread, SQL and parameters) of each statement sent through Django by any thread but the test's own."""

    def of(self, *texts: str) -> list[str]:
        """Those that hold all of some texts."""
        return [sql for _, sql in self if all(text in sql for text in texts)]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Statements:
    """What the worker's threads say to the database."""
    import threading

    seen = Statements()
    execute = CursorWrapper.execute

    def spy(self: CursorWrapper, sql: Any, params: Any = None) -> Any:
        name = threading.current_thread().name
        if name.startswith(("pgjobs-", "test-worker")):
            seen.append((name, f"{sql} -- {params}"))
        return execute(self, sql, params)

    monkeypatch.setattr(CursorWrapper, "execute", spy)
    return seen


def sql(statement: str, *params: object) -> list[tuple[Any, ...]]:
    """Rows of a statement on the test's own connection."""
    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def steal(job_id: int) -> None:
    """Another worker holds the job from now on."""
    sql("UPDATE pgjobs_job SET lease = 1, reserved_by = 'another', reserved_until = '9000-01-01' WHERE id = %s", job_id)
