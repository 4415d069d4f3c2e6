"""A handler may leave anything behind; the next job on its thread meets nothing of it (F51, F55)."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import decimal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django.utils import timezone, translation

from tests.integration.worker.conftest import sql
from tests.testapp.jobs import scripted
from tests.testapp.models import Audit, Note
from tests.testapp.script import VARIABLE
from tests.worker_harness import Handlers, Workers

LEFTOVERS: dict[str, tuple[list[list[Any]], str]] = {
    "autocommit off": ([["leave_autocommit_off"]], "done"),
    "BEGIN": ([["leave_begin"]], "done"),
    "a broken transaction": ([["leave_broken"]], "done"),
    "an entered atomic()": ([["leave_atomic"], ["note", "lost"]], "done"),
    "a broken atomic(), swallowed": ([["break_atomic"]], "done"),
    "on_commit raises": ([["raise_on_commit"]], "dead"),
    "search_path": ([["sql", "SET search_path TO nowhere"]], "done"),
    "set_config": ([["sql", "SELECT set_config('search_path', 'nowhere', false)"]], "done"),
    "timezone": ([["sql", "SET TIME ZONE 'Asia/Kathmandu'"]], "done"),
    "statement_timeout": ([["sql", "SET statement_timeout = '1ms'"]], "done"),
    "default_transaction_read_only": ([["sql", "SET default_transaction_read_only = on"]], "done"),
    "role": ([["sql", "SET ROLE pg_monitor"]], "done"),
    "session authorization": ([["sql", "SET SESSION AUTHORIZATION DEFAULT"], ["sql", "SET ROLE pg_monitor"]], "done"),
    "LISTEN": ([["sql", "LISTEN something"]], "done"),
    "advisory lock": ([["sql", "SELECT pg_advisory_lock(815)"]], "done"),
    "temporary table": ([["sql", "CREATE TEMP TABLE pgjobs_job (id int)"]], "done"),
    "cursor": ([["sql", "DECLARE c CURSOR WITH HOLD FOR SELECT 1"]], "done"),
    "prepared statement": ([["sql", "PREPARE p AS SELECT 1"]], "done"),
    "closed": ([["close"]], "done"),
    "closed below Django": ([["close_below"]], "done"),
    "terminated": ([["terminate"]], "done"),
    "language, zone, context": ([["activate"]], "done"),
    "a failure in a transaction": ([["leave_begin"], ["raise"]], "dead"),
    "a failure in autocommit off": ([["leave_autocommit_off"], ["raise"]], "dead"),
    "a thread": ([["spawn", 0.1]], "done"),
}


@pytest.mark.parametrize("name", LEFTOVERS)
def test_the_next_job_finds_a_clean_slot(workers: Workers, name: str) -> None:
    steps, ends = LEFTOVERS[name]
    good = [["see"], ["note", "good"], ["return", "good"]]
    scripted.using(priority=2).enqueue(steps=good)
    job = scripted.using(priority=1, max_attempts=1).enqueue(steps=steps)
    after = scripted.using(priority=0).enqueue(steps=good)
    workers.drain(THREADS=1)

    assert job.get().status == ends
    assert after.get().status == "done"
    assert after.get().attempts == 1
    first, second = Audit.objects.filter(event="saw").order_by("id").values_list("data", flat=True)
    same = {key: value for key, value in first.items() if key != "backend"}
    assert {key: value for key, value in second.items() if key != "backend"} == same
    assert Note.objects.filter(text="good").count() == 2
    assert not Note.objects.filter(text__in=["left open", "lost"]).exists(), "rolled back"


def leave(what: Callable[[], object], workers: Workers, handlers: Handlers, look: Callable[[], Any]) -> list[Any]:
    """What ``look`` finds before ``what`` was done on the only slot, and after."""
    found: list[Any] = []

    @handlers(max_attempts=1, priority=1)
    def untidy() -> None:
        found.append(look())
        what()

    @handlers(max_attempts=1)
    def tidy() -> str:
        found.append(look())
        Note.objects.create(text="tidy")
        return "fine"

    untidy.enqueue()
    job = tidy.enqueue()
    workers.drain(THREADS=1)
    row = job.get()
    assert (row.status, row.result) == ("done", "fine"), row.last_error
    return found


def test_locale_context_and_decimals(workers: Workers, handlers: Handlers) -> None:
    own: contextvars.ContextVar[str] = contextvars.ContextVar("own", default="unset")

    def mess() -> None:
        translation.activate("uk")
        timezone.activate("Asia/Kathmandu")
        own.set("left")
        VARIABLE.set("left")
        decimal.getcontext().prec = 3

    def look() -> tuple[Any, ...]:
        return (
            translation.get_language(),
            timezone.get_current_timezone_name(),
            own.get(),
            VARIABLE.get(),
            decimal.getcontext().prec,
        )

    before, after = leave(mess, workers, handlers, look)
    assert before == after == ("en-us", "UTC", "unset", "clean", 28)


def test_a_running_event_loop(workers: Workers, handlers: Handlers) -> None:
    """Some libraries leave one marked as running: Django would then refuse every query."""
    loop = asyncio.new_event_loop()
    leave(lambda: asyncio._set_running_loop(loop), workers, handlers, lambda: asyncio._get_running_loop())
    loop.close()


def test_an_execute_wrapper(workers: Workers, handlers: Handlers) -> None:
    def refuse(*args: Any) -> Any:
        raise DatabaseError("this wrapper refuses everything")

    def mess() -> None:
        connection.ensure_connection()
        connection.execute_wrappers.append(refuse)

    before, after = leave(mess, workers, handlers, lambda: len(connection.execute_wrappers))
    assert before == after


def test_what_waits_for_a_commit_that_never_comes(workers: Workers, handlers: Handlers) -> None:
    called: list[int] = []

    def mess() -> None:
        transaction.atomic().__enter__()
        transaction.on_commit(lambda: called.append(1))

    leave(mess, workers, handlers, lambda: len(connection.run_on_commit))
    assert called == []


@pytest.fixture
def other_alias() -> Iterator[str]:
    """A second alias for the test's database."""
    connections.settings["second"] = {**connections["default"].settings_dict}
    yield "second"
    del connections.settings["second"]
    with contextlib.suppress(AttributeError):
        del connections["second"]


@pytest.mark.parametrize(
    "mess", ["BEGIN", "SET search_path TO nowhere", "SELECT pg_terminate_backend(pg_backend_pid())"]
)
def test_a_second_alias_is_kept_clean_too(workers: Workers, handlers: Handlers, other_alias: str, mess: str) -> None:
    def leave_it() -> None:
        with contextlib.suppress(DatabaseError), connections[other_alias].cursor() as cursor:
            cursor.execute(mess)

    def look() -> Any:
        with connections[other_alias].cursor() as cursor:
            cursor.execute("SELECT current_setting('search_path'), count(*) FROM testapp_note")
            return cursor.fetchone()

    before, after = leave(leave_it, workers, handlers, look)
    assert before == after


def test_connections_that_the_server_ended_between_two_jobs(
    workers: Workers, handlers: Handlers, other_alias: str
) -> None:
    """All backends of the worker, of both aliases: the next job works at its first attempt."""

    @handlers
    def use() -> None:
        Note.objects.create(text="one")
        Note.objects.using(other_alias).create(text="two")

    worker = workers.start(THREADS=1)
    first = use.enqueue()
    worker.wait_recorded(1)
    sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    second = use.enqueue()
    worker.wait_recorded(2)
    worker.stop()
    assert [(job.get().status, job.get().attempts) for job in (first, second)] == [("done", 1)] * 2


def test_connections_are_kept_from_job_to_job(workers: Workers, handlers: Handlers) -> None:
    """CONN_MAX_AGE = 0 is meant for requests: a connection for each job would cost more than most jobs."""
    backends: set[int] = set()

    @handlers
    def use() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            backends.add(cursor.fetchone()[0])

    for _ in range(20):
        use.enqueue()
    workers.drain(THREADS=1)
    assert len(backends) == 1


def test_debug_keeps_no_statements(workers: Workers, handlers: Handlers, settings: Any) -> None:
    """F53: with DEBUG Django remembers every statement of a connection."""
    settings.DEBUG = True
    lengths: list[int] = []

    @handlers
    def use() -> None:
        Note.objects.create(text="x")
        lengths.append(len(connection.queries_log))

    for _ in range(200):
        use.enqueue()
    worker = workers.drain(THREADS=1)
    assert max(lengths) < 5
    for role in ("_connection", "_completer", "_keeper"):
        held = getattr(worker.worker, role)
        held = getattr(held, "_connection", None) or getattr(getattr(held, "loop", None), "_connection", held)
        assert len(held.queries_log) < 20
