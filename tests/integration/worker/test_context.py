"""What a handler knows and says while it runs, and how it learns that it should stop."""

from __future__ import annotations

import contextlib
import contextvars
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from django.db import connection, transaction

from pgjobs import JobContext, enqueue, store
from pgjobs.api.context import set_context_hooks
from tests.integration.worker.conftest import sql, steal
from tests.rows import history
from tests.testapp import audit, script
from tests.testapp.jobs import scripted, scripted_atomic
from tests.testapp.models import Audit
from tests.waiting import wait_until
from tests.worker_harness import Handlers, Workers


def test_the_context(workers: Workers, handlers: Handlers) -> None:
    seen: list[Any] = []

    @handlers
    def look(ctx: JobContext, a: int) -> None:
        seen.append((ctx.id, ctx.kind, ctx.attempt, ctx.max_attempts, ctx.scheduled_for, dict(ctx.meta), a))
        seen.append((ctx.cancelled, ctx.still_owned()))

    job = look.using(max_attempts=4, meta={"tenant": "acme"}).enqueue(a=1)
    workers.drain()
    assert seen == [(job.id, "look", 1, 4, None, {"tenant": "acme"}, 1), (False, True)]


def test_ctx_need_not_be_asked_for(workers: Workers, handlers: Handlers) -> None:
    @handlers
    def plain(a: int, b: int = 2) -> int:
        return a + b

    job = plain.enqueue(a=1)
    workers.drain()
    assert job.get().result == 3


def test_lines_of_the_jobs_logger_say_whose_they_are(
    workers: Workers, handlers: Handlers, caplog: pytest.LogCaptureFixture
) -> None:
    @handlers(queue="mail")
    def talk(ctx: JobContext) -> None:
        ctx.log.warning("hello")

    job = talk.enqueue()
    workers.drain()
    [line] = [record for record in caplog.records if record.message == "hello"]
    assert (line.job_id, line.kind, line.queue, line.attempt) == (job.id, "talk", "mail", 1)  # type: ignore[attr-defined]


# Cancel --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("then", "status"), [("return", "done"), ("raise", "cancelled"), ("cancel", "cancelled")])
def test_a_cancel_arrives_within_a_heartbeat_without_listening(workers: Workers, then: str, status: str) -> None:
    """F24."""
    job = scripted.enqueue(steps=[["until_cancelled", 20, then]])
    workers.start(POLL_INTERVAL=30)
    wait_until(lambda: "start" in audit.events(job.id))
    assert store.cancel(connection, [job.id]) == {job.id: "requested"}
    wait_until(lambda: "saw cancel" in audit.events(job.id), seconds=5)
    wait_until(lambda: job.get().status == status)
    assert job.get().attempts == 1


@pytest.mark.parametrize("step", [["retry", 0], ["snooze", 0], ["fail"], ["raise"]], ids=lambda step: step[0])
def test_whatever_else_a_cancelled_run_says_it_is_cancelled(workers: Workers, step: list[Any]) -> None:
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1], step])
        worker = workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        store.cancel(connection, [job.id])
        open_gate()
        worker.wait_recorded(1)
    assert job.get().status == "cancelled"
    assert audit.events(job.id).count("start") == 1


def test_a_handler_that_does_not_ask_is_stopped_in_the_end(workers: Workers) -> None:
    job = scripted.enqueue(steps=[["spin", 60]])
    workers.start(TIMEOUT_GRACE=0.5)
    wait_until(lambda: "start" in audit.events(job.id))
    store.cancel(connection, [job.id])
    wait_until(lambda: job.get().status == "cancelled", seconds=10)


# Ownership -----------------------------------------------------------------------------------------------------------


def test_a_handler_learns_that_its_lease_is_lost(workers: Workers) -> None:
    """F14: by the next beat ctx.cancelled is true, and the outcome is not recorded."""
    job = scripted.enqueue(steps=[["until_cancelled", 20, "return"]])
    worker = workers.start()
    wait_until(lambda: "start" in audit.events(job.id))
    steal(job.id)
    wait_until(lambda: "saw cancel" in audit.events(job.id), seconds=5)
    worker.wait_recorded(1)
    assert worker.recorded == {"lost": 1}
    row = job.get()
    assert (row.status, row.lease, row.reserved_by) == ("reserved", 1, "another")


def test_still_owned_asks_the_database(workers: Workers) -> None:
    job = scripted.enqueue(steps=[["until_lost", 20]])
    workers.start(HEARTBEAT=0.9)
    wait_until(lambda: "start" in audit.events(job.id))
    steal(job.id)
    wait_until(lambda: "saw lost" in audit.events(job.id), seconds=5)


# Progress ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("handler", [scripted, scripted_atomic], ids=["plain", "atomic"])
def test_progress_is_seen_while_the_job_runs(workers: Workers, handler: Any) -> None:
    with script.closed_gate() as open_gate:
        job = handler.enqueue(steps=[["progress", 3, 10, "three"], ["gate", 1]])
        workers.start()
        wait_until(lambda: job.get().progress == {"done": 3, "total": 10, "text": "three"})
        assert job.get().status == "reserved"
        open_gate()
        wait_until(lambda: job.get().status == "done")


@pytest.mark.parametrize("ending", [[], [["fail"]]], ids=["returns", "raises"])
def test_what_a_handler_says_last_is_stored(workers: Workers, ending: list[list[str]]) -> None:
    """Said right before the end, of which the worker may hear first."""
    jobs = [scripted.enqueue(steps=[["progress", n, 40, "last"], *ending]) for n in range(40)]
    workers.drain()
    assert [job.get().progress for job in jobs] == [{"done": n, "total": 40, "text": "last"} for n in range(40)]


def test_progress_that_no_longer_counts_is_not_stored(workers: Workers) -> None:
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1], ["progress", 1, 2]])
        worker = workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        steal(job.id)
        open_gate()
        worker.wait_recorded(1)
    assert job.get().progress is None


# Context that travels ------------------------------------------------------------------------------------------------


request_id: contextvars.ContextVar[str] = contextvars.ContextVar("request_id", default="-")


@contextlib.contextmanager
def restore(meta: Mapping[str, Any]) -> Iterator[None]:
    token = request_id.set(meta.get("request_id", "?"))
    try:
        yield
    finally:
        request_id.reset(token)


@pytest.fixture
def hooks() -> Iterator[None]:
    yield
    set_context_hooks(None, None)


def test_hooks_carry_context_from_the_caller_to_the_run(workers: Workers, handlers: Handlers, hooks: None) -> None:
    """F148."""
    seen: list[str] = []
    set_context_hooks(lambda: {"request_id": request_id.get()}, restore)

    @handlers
    def look() -> None:
        seen.append(request_id.get())

    token = request_id.set("r-17")
    job = look.using(meta={"tenant": "acme"}).enqueue()
    request_id.reset(token)
    workers.drain()
    assert seen == ["r-17"]
    assert job.get().meta == {"request_id": "r-17", "tenant": "acme"}


def test_a_hook_that_raises_costs_nothing_but_the_context(
    workers: Workers, hooks: None, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(meta: Mapping[str, Any]) -> Any:
        raise RuntimeError("broken hook")

    set_context_hooks(dict, broken)
    job = scripted.enqueue(steps=[["return", 1]])
    workers.drain()
    assert job.get().status == "done"
    assert "the hook that restores a job's context raised" in caplog.text


def test_a_hook_that_raises_at_its_end_does_not_change_the_outcome(
    workers: Workers, hooks: None, caplog: pytest.LogCaptureFixture
) -> None:
    @contextlib.contextmanager
    def broken(meta: Mapping[str, Any]) -> Iterator[None]:
        yield
        raise RuntimeError("broken at its end")

    set_context_hooks(dict, broken)
    job = scripted.using(max_attempts=1).enqueue(steps=[["return", 1]])
    workers.drain()
    assert job.get().status == "done"
    assert "raised at its end" in caplog.text


def test_a_hook_does_not_swallow_what_the_handler_raises(workers: Workers, hooks: None) -> None:
    @contextlib.contextmanager
    def swallow(meta: Mapping[str, Any]) -> Iterator[None]:
        with contextlib.suppress(Exception):
            yield

    set_context_hooks(dict, swallow)
    job = scripted.using(max_attempts=1).enqueue(steps=[["raise", "ValueError", "boom"]])
    workers.drain()
    assert (job.get().status, job.get().last_error) == ("dead", "ValueError: boom")
    assert len(history(job.id)) == 1


# Parents -------------------------------------------------------------------------------------------------------------


def test_what_a_handler_enqueues_names_its_parent(workers: Workers) -> None:
    job = scripted.enqueue(steps=[["enqueue", "echo", {}], ["enqueue", "scripted", {"steps": []}]])
    workers.drain()
    children = list(Audit.objects.filter(event="enqueued").values_list("data", flat=True))
    assert sql("SELECT DISTINCT parent_id FROM pgjobs_job WHERE id = ANY (%s)", children) == [(job.id,)]
    assert job.get().parent_id is None
    assert enqueue("echo", {}).get().parent_id is None, "outside of a run there is none"


# The transaction a handler finds -------------------------------------------------------------------------------------


def test_a_handler_runs_outside_of_any_transaction(workers: Workers) -> None:
    """F56: nothing waits for it, nothing is pinned by it."""
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["note", "first"], ["gate", 1]])
        workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        assert sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%%'"
        ) == [(0,)]
        assert sql("SELECT text FROM testapp_note") == [("first",)]
        with transaction.atomic():
            assert store.cancel(connection, [job.id]) == {job.id: "requested"}  # at once
        open_gate()
        wait_until(lambda: job.get().status == "done")


def test_debug_lines_can_be_switched_on(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "pgjobs")
    job = scripted.enqueue(steps=[])
    workers.drain()
    assert f"job {job.id} scripted: started, attempt 1" in caplog.text
    assert f"job {job.id} scripted: done, attempt 1" in caplog.text


def test_progress_waits_for_a_row_that_is_held(workers: Workers, connect: Any) -> None:
    """By a beat for a moment, or by somebody's open transaction: it is stored when they let go; endings do not wait for it."""
    with script.closed_gate(1) as open_first, script.closed_gate(2) as open_second:
        job = scripted.enqueue(steps=[["gate", 1], ["progress", 1, 2], ["audit", "said"], ["gate", 2]])
        workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        holder = connect(autocommit=False)
        holder.execute("SELECT 1 FROM pgjobs_job WHERE id = %s FOR UPDATE", [job.id])
        open_first()
        wait_until(lambda: "said" in audit.events(job.id))
        other = scripted.enqueue(steps=[])
        wait_until(lambda: other.get().status == "done")
        assert job.get().progress is None
        holder.rollback()
        wait_until(lambda: job.get().progress == {"done": 1, "total": 2, "text": ""})
        open_second()
