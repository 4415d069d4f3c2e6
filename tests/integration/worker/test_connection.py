"""The worker's own connections, whatever the server, the role and Django's settings make of a session."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection, connections

from pgjobs import store
from pgjobs.models import Job
from pgjobs.worker.connection import close, dedicated, keep_plans, ready
from pgjobs.worker.hygiene import Session
from pgjobs.worker.supervisor import close_all
from tests.testapp.jobs import scripted_atomic
from tests.testapp.models import Note
from tests.worker_harness import Handlers, Workers

HOSTILE = {
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "statement_timeout": "100",
    "lock_timeout": "50",
    "idle_session_timeout": "2000",
    "DateStyle": "German,DMY",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Asia/Kathmandu",
}


@pytest.fixture
def alias(transactional_db: None) -> Iterator[Any]:
    """Makes a second alias for the test's database, with options of its own."""

    def make(**changes: Any) -> str:
        copy = {**connections["default"].settings_dict}
        copy["OPTIONS"] = {**copy["OPTIONS"], **changes.pop("OPTIONS", {})}
        connections.settings["strange"] = copy | changes
        return "strange"

    yield make
    if "strange" in connections.settings:
        close_all()
        del connections.settings["strange"]
        if hasattr(connections._connections, "strange"):
            del connections["strange"]


def options(**settings: str) -> str:
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


@pytest.mark.parametrize("binding", [False, True], ids=["client", "server"])
def test_what_its_statements_rely_on_is_set(alias: Any, binding: bool) -> None:
    own = dedicated(alias(OPTIONS={"options": options(**HOSTILE), "server_side_binding": binding}), "test")
    with ready(own).cursor() as cursor:
        cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", [list(HOSTILE)])
        found = dict(cursor.fetchall())
    close(own)
    assert found == {
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off",
        "statement_timeout": "30000",
        "lock_timeout": "30000",
        "idle_session_timeout": "0",
        "DateStyle": "ISO, DMY",
        "IntervalStyle": "postgres",
        "TimeZone": "UTC",  # Django's
    }


def test_what_is_well_is_left_alone(alias: Any) -> None:
    """Behind a pooler a setting would reach other clients."""
    own = dedicated(alias(OPTIONS={"options": options(statement_timeout="60000", DateStyle="ISO,DMY")}), "test")
    with ready(own).cursor() as cursor:
        cursor.execute("SELECT name, setting FROM pg_settings WHERE source = 'session'")
        changed = dict(cursor.fetchall())
    close(own)
    assert set(changed) <= {"TimeZone", "client_encoding"}, "only what Django itself sets"


def test_atomic_handlers_with_autocommit_off(alias: Any, workers: Workers) -> None:
    """Django's atomic() leaves the commit to its caller then."""
    job = scripted_atomic.enqueue(steps=[["sql", "SELECT 1"], ["return", 5]])
    workers.drain(DATABASE=alias(AUTOCOMMIT=False))
    row = job.get()
    assert (row.status, row.attempts, row.result) == ("done", 1, 5)


def test_atomic_handlers_of_a_role_that_only_reads_by_default(alias: Any, workers: Workers) -> None:
    job = scripted_atomic.enqueue(steps=[["sql", "SELECT 1"]])
    workers.drain(DATABASE=alias(OPTIONS={"options": options(default_transaction_read_only="on")}))
    assert (job.get().status, job.get().attempts) == ("done", 1)


# Django's pool -------------------------------------------------------------------------------------------------------


def test_a_pool_gives_the_same_connection_out_again_and_again(transactional_db: None) -> None:
    connection.ensure_connection()
    for _ in range(2000):
        session = Session(connection, [])
    session.touched = False
    assert connection.connection.cursor().execute("SELECT 1").fetchone() == (1,)
    assert session.touched
    connection.close()


def test_handlers_with_a_pool_smaller_than_the_threads(alias: Any, workers: Workers, handlers: Handlers) -> None:
    pytest.importorskip("psycopg_pool")
    pooled = alias(CONN_MAX_AGE=0, OPTIONS={"pool": {"min_size": 1, "max_size": 2, "timeout": 20}})

    @handlers
    def use(n: int) -> None:
        Note.objects.using(pooled).create(text=str(n))

    for n in range(100):
        use.enqueue(n)
    workers.drain(THREADS=4)
    connections[pooled].close_pool()  # type: ignore[attr-defined]  # it is the process's, and outlives the worker
    assert Job.objects.filter(status="done", attempts=1).count() == Note.objects.count() == 100


def test_a_pool_is_closed_before_a_fork(alias: Any) -> None:
    """Its connections would be handed out on both sides."""
    pytest.importorskip("psycopg_pool")
    pooled = connections[alias(CONN_MAX_AGE=0, OPTIONS={"pool": True})]
    pooled.ensure_connection()
    close_all()
    assert "strange" not in pooled._connection_pools  # type: ignore[attr-defined]


@pytest.mark.parametrize("own_session", [False, True])
def test_plans_of_claims_are_kept_in_a_session_of_its_own(alias: Any, own_session: bool) -> None:
    own = dedicated(alias(), "test")
    for _ in range(2):
        ready(own)
        if own_session:
            keep_plans(own)
        for kinds in (["none"], ["none", 'a, "b" and \\c'], None):
            claim = store.claim(own, 300, "w-1", queues=None, exclude_queues=["x"], kinds=kinds, lease=15)
            store.claim(
                own, 8, "w-1", queues=["a"], exclude_queues=(), kinds=kinds, lease=0.5, suspects=False, read=claim.read
            )
        with own.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%pgjobs_claim_many%'")
            kept = cursor.fetchone()[0]
        assert (0 < kept <= 4) if own_session else kept == 0
        close(own)  # the next session begins without any
