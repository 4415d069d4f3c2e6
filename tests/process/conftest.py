"""Real processes, real signals; a server of the tests' own where it has to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from tests.worker_harness import Process, Proxy, Server, database_url, make_server, proxy_to


class Processes:
    """Starts ``run_jobs``; at the end of the test all are gone."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._all: list[Process] = []

    def start(
        self, *args: object, url: str | None = None, wrap: tuple[str, ...] = (), prelude: str = "", **env: str
    ) -> Process:
        one = Process(*args, url=url or self._url, env=env, wrap=wrap, prelude=prelude)
        self._all.append(one)
        return one

    def close(self) -> None:
        for one in self._all:
            one.end()


@pytest.fixture
def run_jobs(transactional_db: None) -> Iterator[Callable[..., Process]]:
    """``run_jobs("--threads", 2, PGJOBS_LEASE="3")`` starts a worker on the test's database."""
    some = Processes(database_url())
    yield some.start
    some.close()
    with connection.cursor() as cursor:  # what was killed lets go of the database, which is to be dropped
        cursor.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture(scope="session")
def own_server() -> Iterator[Server]:
    one = make_server()
    yield one
    one.remove()


@pytest.fixture
def server(own_server: Server) -> Iterator[Server]:
    """A server that the test may stop and restart; its database ``jobs`` has the schema, and is empty."""
    own_server.start()
    yield own_server
    own_server.start()
    own_server.query(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = 'jobs' AND pid <> pg_backend_pid()"
    )
    tables = "pgjobs_job, pgjobs_attempt, pgjobs_worker, pgjobs_rerun, pgjobs_pause, testapp_audit, testapp_note"
    own_server.query(f"TRUNCATE {tables}")


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """A wire to that server that can be cut."""
    with proxy_to(server.socket) as one:
        yield one


@pytest.fixture
def run_elsewhere(server: Server) -> Iterator[Callable[..., Process]]:
    """The same on the test's own server."""
    some = Processes(server.url())
    yield some.start
    some.close()


Start = Callable[..., Process]


def insert(server: Server, steps: str, *, kind: str = "scripted_now", **columns: Any) -> int:
    """A scripted job on that server, by plain SQL as any other program would."""
    names = ["kind", "payload", *columns]
    values = [kind, f'{{"steps": {steps}}}', *columns.values()]
    marks = ", ".join(["%s"] * len(values))
    insert = f"INSERT INTO pgjobs_job ({', '.join(names)}) VALUES ({marks}) RETURNING id"  # noqa: S608
    found: int = server.query(insert, *values)
    return found


def status(server: Server, id_: int) -> str:
    found: str = server.query("SELECT status FROM pgjobs_job WHERE id = %s", id_)
    return found
