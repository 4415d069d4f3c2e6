"""Fixtures that tests of every altitude share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from django.db import connection, connections

Connect = Callable[..., psycopg.Connection[Any]]


@pytest.fixture(autouse=True)
def _no_audit_connection_stays() -> Iterator[None]:
    """The audit trail's connection is closed after each test, or the database could not be dropped at the end."""
    yield
    from tests.testapp import audit  # not before Django is set up

    audit.close()


@pytest.fixture
def transactional_db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test's database without a transaction around the test. In place of pytest-django's of that name, which takes
    0.4 s to truncate what DELETE empties in 0.01 s.
    """
    with django_db_blocker.unblock():
        yield
        connections.close_all()  # whatever transaction the test left open
        tables = set(connection.introspection.django_table_names(only_existing=True, include_views=False))
        tables -= {"django_migrations", "django_content_type", "auth_permission"}  # migrate fills them
        # A wish for a rerun outlives its holder, and becomes a job.
        in_order = sorted(tables, key=lambda name: (name != "pgjobs_rerun", name))
        with connection.cursor() as cursor:
            cursor.execute("; ".join(f"DELETE FROM {name}" for name in in_order))  # noqa: S608
        connections.close_all()


@pytest.fixture
def connect(db: None) -> Iterator[Connect]:
    """Opens connections of their own to the test's database, and closes them at the end.

    Autocommit unless told otherwise; ``options`` are those of the server, for example ``"-c search_path="``.
    """
    opened: list[psycopg.Connection[Any]] = []

    def open_one(*, autocommit: bool = True, options: str = "", **more: Any) -> psycopg.Connection[Any]:
        parameters = connections["default"].get_connection_params()
        for name in ("cursor_factory", "context"):
            parameters.pop(name, None)
        connection = psycopg.connect(
            **parameters | {"autocommit": autocommit, "options": f"-c lock_timeout=20s {options}"} | more
        )
        opened.append(connection)
        return connection

    yield open_one
    for one in opened:
        one.close()
