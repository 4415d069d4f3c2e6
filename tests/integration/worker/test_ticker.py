"""Schedules under a worker: who wakes it, how soon, and what reaches the handler."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from pgjobs import JobContext, job
from pgjobs.api.registry import registry
from pgjobs.models import Declaration, Job, Schedule, Tick
from pgjobs.schedules import Schedule as Recurring
from pgjobs.signals import job_enqueued
from tests.integration.worker.conftest import Statements, sql
from tests.rows import database_now
from tests.ticking import MINUTE, SECOND, overdue, schedule, ticks
from tests.waiting import wait_until
from tests.worker_harness import Workers

LONG = {"HEARTBEAT": 5.0, "LEASE": 15.0}
"""A beat that is too seldom to explain what a test sees at once."""


@pytest.fixture
def only_here() -> Iterator[None]:
    before = dict(registry._handlers)
    yield
    registry._handlers = before


def lateness() -> list[float]:
    return [(tick.created_at - tick.scheduled_for).total_seconds() for tick in Tick.objects.order_by("id")]


def listening(workers: Workers, **changes: Any) -> Any:
    one = workers.start({"listen": True}, **LONG | changes)
    wait_until(lambda: one.worker._listener.listening)
    return one


def test_ticks_come_on_the_second_without_waiting_for_a_beat(workers: Workers) -> None:
    one = schedule(every=SECOND)
    listening(workers)
    wait_until(lambda: Tick.objects.count() >= 4)
    assert max(lateness()[1:]) < 1
    times = [time for time, _ in ticks(one)]
    assert [after - before for before, after in pairwise(times)] == [SECOND] * (len(times) - 1)
    wait_until(lambda: Job.objects.filter(status="done").count() >= 3)


@pytest.mark.parametrize("how", ["insert", "update", "enable"])
def test_an_edit_by_plain_sql_is_seen_within_a_second(workers: Workers, how: str) -> None:
    """F96: while the beat comes each five seconds."""
    if how != "insert":
        schedule(cron="0 0 1 1 *", enabled=how == "update")
    listening(workers)
    wait_until(lambda: how != "update" or Schedule.objects.get().next_run_at)
    began = time.monotonic()
    sql(
        {
            "insert": "INSERT INTO pgjobs_schedule (name, kind, payload, every)"
            " VALUES ('x', 'write_note', '{\"text\": \"x\"}', '1 hour')",
            "update": "UPDATE pgjobs_schedule SET cron = '', every = '1 hour'",
            "enable": "UPDATE pgjobs_schedule SET enabled = true",
        }[how]
    )

    def planned() -> bool:
        at = Schedule.objects.get().next_run_at
        return at is not None and (how == "enable" or at - database_now() <= 60 * MINUTE)

    wait_until(planned)
    assert time.monotonic() - began < 1
    assert not Tick.objects.exists()


def test_without_listen_an_edit_is_seen_within_the_poll(workers: Workers) -> None:
    """F96"""
    one = schedule(cron="0 0 1 1 *")
    workers.start({"listen": False}, **LONG | {"POLL_INTERVAL": 0.3})
    wait_until(lambda: Schedule.objects.get().next_run_at)
    began = time.monotonic()
    Schedule.objects.filter(pk=one.pk).update(cron="", every=60 * MINUTE)
    wait_until(lambda: Schedule.objects.filter(next_run_at__lte=database_now() + 60 * MINUTE).exists())
    assert time.monotonic() - began < 1.5


def test_without_listen_the_first_schedule_is_found_by_a_beat(workers: Workers, statements: Statements) -> None:
    workers.start({"listen": False}, HEARTBEAT=0.3, POLL_INTERVAL=0.1)
    wait_until(lambda: statements.of("pgjobs_beat("))
    assert not [1 for alias, text in statements if "pgjobs_next_tick" in text and "beat" not in text][1:]
    schedule()
    wait_until(lambda: Schedule.objects.get().next_run_at)


def test_a_disabled_schedule_fires_no_more(workers: Workers) -> None:
    schedule(every=SECOND)
    listening(workers)
    wait_until(lambda: Tick.objects.count() >= 2)
    sql("UPDATE pgjobs_schedule SET enabled = false")
    count = Tick.objects.count()
    until = database_now() + 2 * SECOND
    wait_until(lambda: database_now() > until)
    assert Tick.objects.count() == count


def test_the_nominal_time_reaches_the_handler(workers: Workers, only_here: None) -> None:
    seen: list[tuple[dt.datetime | None, dict[str, Any]]] = []

    @job(
        every=1,
        schedule_payload=lambda at: {"at": at.isoformat()},
        schedules=[Recurring(cron="@yearly", payload={"at": ""})],
    )
    def told(ctx: JobContext, at: str) -> None:
        seen.append((ctx.scheduled_for, {"at": at}))

    announced = threading.Event()

    def receive(sender: str, **_: Any) -> None:
        announced.set()

    job_enqueued.connect(receive)
    try:
        listening(workers)
        wait_until(lambda: len(seen) >= 2)
        assert announced.is_set()
    finally:
        job_enqueued.disconnect(receive)
    times = [tick.scheduled_for for tick in Tick.objects.order_by("id")]
    for at, payload in seen:
        assert at in times
        assert payload == {"at": at.astimezone(dt.UTC).isoformat()}
    assert {one.name: one.source for one in Schedule.objects.all()} == {"told": "code", "told#2": "code"}


def test_what_leaves_the_code_is_retired_at_the_next_start(workers: Workers, only_here: None) -> None:
    """F97"""

    @job(every=1)
    def leaving() -> None: ...

    first = listening(workers)
    wait_until(lambda: Tick.objects.count() >= 1)
    first.stop()
    registry.remove(leaving.handler)
    listening(workers)
    wait_until(lambda: Schedule.objects.get().retired_at)
    count = Tick.objects.count()
    until = database_now() + 2 * SECOND
    wait_until(lambda: database_now() > until)
    assert Tick.objects.count() == count
    assert Declaration.objects.count() == 2


def test_a_draining_worker_fires_what_is_due_and_no_more(workers: Workers) -> None:
    one, often = schedule(), schedule(every=SECOND)
    for each in (one, often):
        overdue(each)
    workers.drain({"listen": False})
    assert [outcome for _, outcome in ticks(one)] == ["enqueued"]
    assert 1 <= len(ticks(often)) <= 8
    assert set(Job.objects.values_list("status", flat=True)) == {"done"}


def test_twenty_schedules_of_one_second(workers: Workers) -> None:
    """Two workers share them, each time is fired once, and none is late."""
    for n in range(20):
        schedule(name=f"n{n}", every=SECOND, kind="of nobody" if n == 0 else "write_note")
    for _ in range(2):
        listening(workers, THREADS=1)
    first = Tick.objects.count
    wait_until(lambda: first() >= 120, seconds=60)
    found = Tick.objects.exclude(schedule__name="n0").values_list("schedule_id", "scheduled_for")
    assert len(set(found)) == len(found)
    late = sorted(lateness())
    print(
        f"lateness of {len(late)} ticks: median {late[len(late) // 2]:.3f} s, p99 {late[len(late) * 99 // 100]:.3f} s"
    )
    assert late[len(late) * 9 // 10] < 2


@pytest.mark.parametrize("overlap", ["skip", "queue_one"])
def test_a_handler_slower_than_its_schedule_never_runs_beside_itself(
    workers: Workers, only_here: None, overlap: Any
) -> None:
    """F98: and what is left out is counted."""
    lock, at_once = threading.Lock(), [0, 0]

    @job(every=1, overlap=overlap)
    def slow() -> None:
        with lock:
            at_once[0] += 1
            at_once[1] = max(at_once)
        threading.Event().wait(1.7)
        with lock:
            at_once[0] -= 1

    listening(workers, THREADS=3)
    one = wait_until(lambda: Schedule.objects.first())
    wait_until(lambda: len(ticks(one)) >= 7)
    outcomes = [outcome for _, outcome in ticks(one)]
    assert at_once[1] == 1
    assert outcomes.count("skipped") >= 2
    wait_until(
        lambda: Schedule.objects.get().skipped == Tick.objects.filter(outcome="skipped").count(),
        "the counter",
        seconds=3,
    )
    assert Job.objects.filter(status="done").count() >= 2


def test_a_run_that_hangs_blocks_its_schedule_no_longer_than_its_time_limit(workers: Workers, only_here: None) -> None:
    """F98"""
    runs: list[int] = []

    @job(every=1, overlap="skip", timeout=2, max_attempts=1)
    def hanging(ctx: JobContext) -> None:
        runs.append(ctx.id)
        while True:
            threading.Event().wait(0.05)

    listening(workers, THREADS=2)
    wait_until(lambda: len(runs) >= 2, seconds=15)
    first, second = Job.objects.filter(pk__in=runs[:2]).order_by("id")
    assert first.status == "dead"
    assert 1.5 < (second.scheduled_for - first.scheduled_for).total_seconds() < 8


def test_ticks_go_on_after_every_backend_was_terminated(workers: Workers) -> None:
    """F40: and what was missed meanwhile is one tick."""
    one = schedule(every=SECOND)
    listening(workers)
    wait_until(lambda: len(ticks(one)) >= 2)
    sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE starts_with(application_name, 'pgjobs ')"
        " AND datname = current_database()"
    )
    count, began = len(ticks(one)), database_now()
    wait_until(lambda: len(ticks(one)) >= count + 3)
    assert database_now() - began < 8 * SECOND
    assert len({time for time, _ in ticks(one)}) == len(ticks(one)) == len(Job.objects.filter(schedule_id=one.pk))
