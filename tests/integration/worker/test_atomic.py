"""``atomic=True``: the effects and the record of success are one transaction (F56, F131, F151, F158)."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection, transaction

from pgjobs import enqueue
from pgjobs.models import Job
from tests.integration.worker.conftest import steal
from tests.rows import history
from tests.testapp import audit, script
from tests.testapp.jobs import scripted_atomic
from tests.testapp.models import Note
from tests.waiting import wait_until
from tests.worker_harness import Handlers, Workers


def test_effects_and_finish_are_seen_together(workers: Workers) -> None:
    with script.closed_gate() as open_gate:
        job = scripted_atomic.enqueue(steps=[["note", "effect"], ["gate", 1], ["return", 5]])
        workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        assert not Note.objects.exists()
        open_gate()
        wait_until(lambda: Note.objects.exists())
        assert (job.get().status, job.get().result) == ("done", 5)


@pytest.mark.parametrize(
    ("step", "status"),
    [(["raise"], "dead"), (["fail"], "failed"), (["snooze", 60], "pending"), (["retry", 60], "dead"), (["cancel"], "cancelled"),
     (["sys_exit"], "dead"), (["sql", "SELECT 1/0"], "dead")],
    ids=lambda value: value if isinstance(value, str) else value[0],
)  # fmt: skip
def test_whatever_is_no_success_rolls_back(workers: Workers, step: list[Any], status: str) -> None:
    job = scripted_atomic.using(max_attempts=1).enqueue(steps=[["note", "effect"], ["enqueue", "echo", {}], step])
    workers.drain()
    assert job.get().status == status
    assert not Note.objects.exists()
    assert not Job.objects.filter(kind="echo").exists(), "what it enqueued goes with it"


def test_exactly_once_over_retries(workers: Workers) -> None:
    job = scripted_atomic.enqueue(
        steps=[["note", "effect"], ["raise"]], then=[[["note", "effect"], ["enqueue", "echo", {}]]]
    )
    workers.drain()
    assert (job.get().status, job.get().attempts) == ("done", 2)
    assert Note.objects.count() == 1
    assert [row.status for row in Job.objects.filter(kind="echo")] == ["done"]


def test_a_lost_lease_rolls_back(workers: Workers) -> None:
    with script.closed_gate() as open_gate:
        job = scripted_atomic.enqueue(steps=[["note", "effect"], ["gate", 1]])
        worker = workers.start(HEARTBEAT=0.9)
        wait_until(lambda: "at gate" in audit.events(job.id))
        steal(job.id)
        open_gate()
        worker.wait_recorded(1)
        worker.stop()
    assert worker.recorded == {"lost": 1}
    assert not Note.objects.exists()
    assert (job.get().status, job.get().reserved_by) == ("reserved", "another")


def test_the_isolation_level_is_read_committed(workers: Workers, handlers: Handlers) -> None:
    seen = []

    @handlers(atomic=True)
    def look() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SHOW transaction_isolation")
            seen.append((cursor.fetchone()[0], connection.in_atomic_block))

    look.enqueue()
    workers.drain()
    assert seen == [("read committed", True)]


def test_on_commit_runs_after_the_finish(workers: Workers, handlers: Handlers) -> None:
    seen = []

    @handlers(atomic=True)
    def act(ctx: Any) -> None:
        transaction.on_commit(lambda: seen.append(Job.objects.get(pk=ctx.id).status))

    act.enqueue()
    workers.drain()
    assert seen == ["done"]


def test_an_on_commit_that_raises_does_not_undo_the_success(workers: Workers, handlers: Handlers) -> None:
    """The transaction is committed, and with it the finish: the job is done, whatever follows."""

    def broken() -> None:
        raise RuntimeError("after the commit")

    @handlers(atomic=True)
    def act() -> None:
        Note.objects.create(text="effect")
        transaction.on_commit(broken)

    job = act.enqueue()
    workers.drain()
    assert (job.get().status, job.get().attempts) == ("done", 1)
    assert Note.objects.count() == 1


def test_a_deferred_constraint_that_fails_at_commit_is_a_failure(workers: Workers, handlers: Handlers) -> None:
    @handlers(atomic=True, max_attempts=1)
    def act() -> None:
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO auth_user_groups (user_id, group_id) VALUES (-1, -1)")

    job = act.enqueue()
    workers.drain()
    assert (job.get().status, len(history(job.id))) == ("dead", 1)
    assert "IntegrityError" in (job.get().last_error or "")


def test_swallowing_a_database_error_is_no_success(workers: Workers, handlers: Handlers) -> None:
    """The transaction is broken: its effects are gone, so the job has failed."""

    @handlers(atomic=True, max_attempts=1)
    def act() -> None:
        Note.objects.create(text="effect")
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1/0")
        except Exception:
            enqueue  # noqa: B018 - nothing helps here

    job = act.enqueue()
    workers.drain()
    assert job.get().status == "dead"
    assert not Note.objects.exists()
