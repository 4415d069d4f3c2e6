"""Every way a run can end, and what is recorded of it."""

from __future__ import annotations

import asyncio
import datetime as dt
import sys
import threading
import time
from typing import Any

import pytest
from django.utils import timezone

from pgjobs import Cancel, Fail, Fixed, Retry, Snooze, enqueue_many, payload
from pgjobs.models import Attempt, Job
from pgjobs.worker import held
from tests.rows import NO_LEASE, age, columns, database_now, history
from tests.testapp import audit, script
from tests.testapp.jobs import picky, scripted, scripted_now
from tests.waiting import wait_until
from tests.worker_harness import Handlers, Workers

from .conftest import Statements

AT_ONCE = Fixed(0, jitter=0)


@pytest.mark.parametrize(
    "value",
    [None, 0, False, "", [], {}, 1.5, "text", [1, [2]], {"a": {"b": None}}, 2**70, "ümläut \U0001f600", "\\u0000"],
    ids=repr,
)
def test_whatever_is_returned_is_a_success(workers: Workers, handlers: Handlers, value: Any) -> None:
    @handlers
    def give() -> Any:
        return value

    job = give.enqueue()
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.result, row.last_error) == ("done", 1, value, None)
    assert row.finished_at is not None
    assert {name: columns(job.id)[name] for name in NO_LEASE} == NO_LEASE
    assert history(job.id) == []


@pytest.mark.parametrize(
    ("name", "stored", "note"),
    [
        ("object", None, "result not stored: object cannot be written as JSON"),
        ("set", None, "result not stored: set"),
        ("generator", None, "result not stored: generator"),
        ("bytes", None, "result not stored: bytes"),
        ("self", None, "result not stored: list"),
        ("deep", None, "result not stored: list"),
        ("large", None, "result not stored: 20,000,002 bytes of JSON, the limit is 1,048,576"),
        ("nul", {"a�": "b�c"}, None),
        ("surrogate", "�", None),
        ("nan", "nan", None),
    ],
)
def test_a_result_that_cannot_be_stored_is_a_success_all_the_same(
    workers: Workers, name: str, stored: Any, note: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    job = scripted.enqueue(steps=[["return_odd", name]])
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.result) == ("done", 1, stored)
    assert note is None or note in (row.last_error or "")
    assert (note is not None) == ("result not stored" in caplog.text)


def test_an_odd_result_spoils_no_other_of_its_batch(workers: Workers, handlers: Handlers) -> None:

    @handlers
    def give(n: int) -> Any:
        return "\x00" if n == 3 else n

    jobs = [give.enqueue(n=n) for n in range(8)]
    workers.drain()
    assert [job.get().result for job in jobs] == [0, 1, 2, "�", 4, 5, 6, 7]


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_a_handler_that_always_fails_runs_exactly_max_attempts_times(workers: Workers, max_attempts: int) -> None:
    job = scripted_now.using(max_attempts=max_attempts).enqueue(steps=[["raise", "ValueError", "boom"]])
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.last_error) == ("dead", max_attempts, "ValueError: boom")
    assert row.error_class == "ValueError"
    assert row.finished_at is not None
    assert [(h["attempt"], h["outcome"]) for h in history(job.id)] == [(n + 1, "error") for n in range(max_attempts)]
    assert script_starts(job.id) == max_attempts


def test_a_failure_says_what_where_and_when(workers: Workers) -> None:
    job = scripted.enqueue(steps=[["raise", "KeyError", "missing"]])
    worker = workers.drain()

    [attempt] = history(job.id)
    assert attempt["error_class"] == "KeyError"
    assert attempt["error"] == "KeyError: 'missing'"
    assert attempt["worker"] == worker.name
    assert attempt["started_at"] < attempt["finished_at"]
    assert attempt["traceback"].startswith("Traceback (most recent call last):\n")
    assert "script.py" in attempt["traceback"]
    assert attempt["traceback"].rstrip().endswith("KeyError: 'missing'")
    assert "pgjobs/worker" not in attempt["traceback"], "the worker's own frames tell nothing"
    row = job.get()
    assert (row.status, row.attempts, row.worker, row.worker_ids) == ("pending", 1, worker.name, [worker.name])


def test_a_success_after_failures_clears_the_error_and_keeps_the_history(workers: Workers) -> None:
    job = scripted_now.enqueue(steps=[["raise"]], then=[[["raise"]], [["return", "third time"]]])
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.result, row.last_error, row.error_class) == (
        "done", 3, "third time", None, None,
    )  # fmt: skip
    assert [h["attempt"] for h in history(job.id)] == [1, 2]


@pytest.mark.parametrize(
    "error",
    [
        SystemExit(0),
        SystemExit("bye"),
        KeyboardInterrupt(),
        GeneratorExit(),
        TimeoutError("mine"),
        TimeoutError(),
        asyncio.CancelledError(),
        TimeoutError("network"),
        StopIteration(),
        RecursionError(),
        MemoryError(),
        type("Own", (BaseException,), {})("own"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_any_exception_is_an_ordinary_failure(workers: Workers, handlers: Handlers, error: BaseException) -> None:
    """The worker's thread lives on: the next job on the only one runs."""

    @handlers(backoff=AT_ONCE, max_attempts=2)
    def throw() -> None:
        raise error

    job, after = throw.enqueue(), scripted.using(priority=-1).enqueue(steps=[["return", 1]])
    workers.drain(THREADS=1)

    row = job.get()
    assert (row.status, row.attempts) == ("dead", 2)
    assert type(error).__name__ in (row.last_error or "")
    assert [h["outcome"] for h in history(job.id)] == ["error", "error"], "not taken for the queue's own timeout"
    assert after.get().status == "done"


def test_sys_exit_from_deep_inside_ends_only_the_job(workers: Workers, handlers: Handlers) -> None:
    @handlers(max_attempts=1)
    def leave() -> None:
        sys.exit(4)

    job = leave.enqueue()
    assert workers.drain().recorded == {"dead": 1}
    assert job.get().last_error == "SystemExit: 4"


@pytest.mark.parametrize("where", ["the handler", "a task of its own", "a callback"])
def test_sys_exit_in_a_coroutine_ends_only_the_job(workers: Workers, handlers: Handlers, where: str) -> None:
    """asyncio lets it end the event loop, and with it all that runs there."""
    others_run = threading.Event()

    @handlers(max_attempts=1)
    async def leave() -> None:
        while not others_run.is_set():
            await asyncio.sleep(0.01)
        if where == "a callback":
            asyncio.get_running_loop().call_soon(sys.exit, 4)
            await asyncio.sleep(0.05)
        elif where == "a task of its own":
            await asyncio.gather(exits())
        sys.exit(4)

    async def exits() -> None:
        sys.exit(4)

    @handlers
    async def other() -> str:
        others_run.set()
        await asyncio.sleep(0.3)
        return "whole"

    job, neighbour = leave.enqueue(), other.enqueue()
    worker = workers.drain()
    assert (worker.recorded, worker.code) == ({"dead": 1, "done": 1}, 0)
    assert job.get().last_error == "SystemExit: 4"
    assert (neighbour.get().attempts, neighbour.get().result) == (1, "whole")


# Retry ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [3600, dt.timedelta(hours=1)], ids=["seconds", "timedelta"])
def test_retry_after(workers: Workers, handlers: Handlers, after: Any) -> None:
    @handlers
    def later() -> None:
        raise Retry("not yet", after=after)

    job = later.enqueue()
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.snoozes, row.last_error) == ("pending", 1, 0, "Retry: not yet")
    assert 3590 < (row.run_after - database_now()).total_seconds() <= 3600


def test_retry_counts_as_an_attempt(workers: Workers) -> None:
    job = scripted_now.using(max_attempts=3).enqueue(steps=[["retry", 0]])
    workers.drain()
    assert (job.get().status, job.get().attempts) == ("dead", 3)


def test_retry_without_a_delay_backs_off(workers: Workers, handlers: Handlers) -> None:
    @handlers(backoff=Fixed(500, jitter=0))
    def later() -> None:
        raise Retry

    job = later.enqueue()
    workers.drain()
    assert 490 < (job.get().run_after - database_now()).total_seconds() <= 500


# Snooze --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "until",
    [3600, dt.timedelta(hours=1), lambda: timezone.now() + dt.timedelta(hours=1)],
    ids=["seconds", "timedelta", "datetime"],
)
def test_snooze(workers: Workers, handlers: Handlers, until: Any) -> None:
    @handlers
    def doze() -> None:
        raise Snooze(until() if callable(until) else until, "the other side sleeps")

    job = doze.enqueue()
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.snoozes, row.last_error) == ("pending", 0, 1, "the other side sleeps")
    assert 3590 < (row.run_after - database_now()).total_seconds() < 3601
    assert history(job.id) == [], "that is no failure"


def test_thirty_snoozes_cost_no_attempt(workers: Workers, handlers: Handlers) -> None:
    runs = []

    @handlers(max_attempts=3)
    def doze() -> str:
        runs.append(1)
        if len(runs) <= 30:
            raise Snooze(0)
        return "awake"

    job = doze.enqueue()
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.snoozes, row.result) == ("done", 1, 30, "awake")
    assert len(runs) == 31


def test_a_naive_time_to_snooze_until_is_an_ordinary_failure(workers: Workers, handlers: Handlers) -> None:
    @handlers
    def doze() -> None:
        raise Snooze(dt.datetime(2099, 1, 1))  # noqa: DTZ001

    job = doze.enqueue()
    workers.drain()
    assert "needs an aware datetime" in (job.get().last_error or "")


# Fail, Cancel, retry_on, discard_on ----------------------------------------------------------------------------------


def test_fail_ends_at_once(workers: Workers, handlers: Handlers) -> None:
    @handlers(backoff=AT_ONCE)
    def never() -> None:
        raise Fail("no such customer")

    job = never.enqueue()
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.last_error) == ("failed", 1, "Fail: no such customer")
    assert [h["outcome"] for h in history(job.id)] == ["failed"]


def test_cancel_ends_at_once(workers: Workers, handlers: Handlers) -> None:
    @handlers(backoff=AT_ONCE)
    def stop() -> None:
        raise Cancel("nobody needs it")

    job = stop.enqueue()
    workers.drain()

    row = job.get()
    assert (row.status, row.attempts, row.last_error) == ("cancelled", 1, "nobody needs it")


@pytest.mark.parametrize(
    ("error", "status", "attempts"),
    [("Flaky", "dead", 3), ("Hopeless", "failed", 1), ("ValueError", "failed", 1)],
)
def test_retry_on_and_discard_on(workers: Workers, error: str, status: str, attempts: int) -> None:
    job = picky.enqueue(steps=[["raise", error]])
    workers.drain()
    assert (job.get().status, job.get().attempts) == (status, attempts)


def test_retry_is_obeyed_whatever_retry_on_says(workers: Workers) -> None:
    job = picky.enqueue(steps=[["retry", 0]], then=[[["return", 1]]])
    workers.drain()
    assert (job.get().status, job.get().attempts) == ("done", 2)


# The row after each --------------------------------------------------------------------------------------------------


def test_a_row_that_is_deleted_in_mid_run_stops_nothing(workers: Workers) -> None:
    with script.closed_gate() as open_gate:
        gone = scripted.enqueue(steps=[["gate", 1]])
        worker = workers.start(THREADS=1)
        wait_until(lambda: "at gate" in audit.events(gone.id))
        Job.objects.filter(pk=gone.id).delete()
        after = scripted.enqueue(steps=[["return", 1]])
        open_gate()
        worker.wait_recorded(2)
    assert worker.recorded == {"lost": 1, "done": 1}
    assert after.get().status == "done"


def test_backoff_counts_from_the_failure_not_from_the_start(workers: Workers, handlers: Handlers) -> None:
    """The attempt is made to look an hour long; the pause still lies ahead."""

    @handlers(backoff=Fixed(100, jitter=0))
    def long(ctx: Any) -> None:
        age(ctx.id, 3600, "last_attempted_at", "started_at")
        raise ValueError

    job = long.enqueue()
    workers.drain()
    [attempt] = history(job.id)
    assert (job.get().run_after - attempt["finished_at"]).total_seconds() == 100
    assert (attempt["finished_at"] - attempt["started_at"]).total_seconds() > 3600


def script_starts(job_id: int) -> int:
    return audit.events(job_id).count("start")


def test_worker_ids_name_each_attempt(workers: Workers) -> None:
    job = scripted_now.using(max_attempts=3).enqueue(steps=[["raise"]], then=[[["raise"]], [["return"]]])
    first = workers.drain({"max_jobs": 1})
    second = workers.drain()
    assert job.get().worker_ids == [first.name, second.name, second.name]
    assert Attempt.objects.count() == 2


def test_large_results_go_in_several_statements(workers: Workers, handlers: Handlers, statements: Statements) -> None:
    """Each is within the limit, but PostgreSQL takes no more than 256 MiB of jsonb at once."""

    @handlers
    def large() -> str:
        return "x" * 1_000_000

    enqueue_many((large, None) for _ in range(20))
    worker = workers.make({"drain": True}, LEASE=60)
    waiting = worker.worker._completer._queue
    go_on = threading.Event()
    waiting.put(go_on.wait)  # all of them wait for the completer
    worker.begin()
    wait_until(lambda: waiting.qsize() == 20, "20 results")
    go_on.set()
    worker.ended()

    assert Job.objects.filter(status="done", attempts=1, result="x" * 1_000_000).count() == 20
    # A beat may hold a row for a moment: that one is sent again.
    assert 3 <= len(statements.of("pgjobs_finish_many")) <= 6


def test_no_more_is_claimed_while_much_waits_to_be_recorded(
    workers: Workers, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is slow to record results must not fill our memory with them."""
    monkeypatch.setattr(held, "MOST_WEIGHT", 5_000_000)

    @handlers
    def large() -> str:
        return "x" * 1_000_000

    enqueue_many((large, None) for _ in range(20))
    worker = workers.make({"drain": True}, LEASE=60, PREFETCH_MS=0, THREADS=1)
    waiting = worker.worker._completer._queue
    go_on = threading.Event()
    waiting.put(go_on.wait)
    worker.begin()
    wait_until(lambda: waiting.qsize() == 5, "results")
    time.sleep(0.5)
    assert waiting.qsize() == 5
    go_on.set()
    worker.ended()
    assert Job.objects.filter(status="done", attempts=1).count() == 20


def test_a_result_beyond_a_limit_of_the_server_stops_no_other(
    workers: Workers, handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON that is nested too deep for the server's stack is an OperationalError, as a lost connection is."""
    dumps = payload.dumps_result

    def dumps_deep(value: object, limit: int) -> tuple[str | None, str | None]:
        return ("[" * 50_000 + "]" * 50_000, None) if value == "deep" else dumps(value, limit)

    monkeypatch.setattr(payload, "dumps_result", dumps_deep)

    @handlers
    def give(value: str) -> str:
        return value

    first, deep, last = (give.enqueue(value) for value in ("first", "deep", "last"))
    workers.drain()

    assert [one.get().result for one in (first, deep, last)] == ["first", None, "last"]
    assert {one.get().status for one in (first, deep, last)} == {"done"}
    assert "result not stored: PostgreSQL refused it" in (deep.get().last_error or "")
