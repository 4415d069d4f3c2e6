"""How far the queues were read, and whether inserters tell: what a worker must not miss on either account."""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Job
from pgjobs.worker import reach
from pgjobs.worker.held import Pool
from tests.conftest import Connect
from tests.factories import JobFactory, PauseFactory
from tests.testapp.jobs import scripted
from tests.waiting import wait_until
from tests.worker_harness import InThread, Workers

pytestmark = pytest.mark.django_db(transaction=True)

AT_MOST = 2.5
"""Seconds that a job may lie behind: a second, and what a busy machine adds."""


@pytest.fixture
def partly(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[store.Claim]]:
    """Every search is slow, so that each claim goes on where the last one stopped; the claims that were made."""
    claim, claims = store.claim, []

    def made(*args: Any, **options: Any) -> store.Claim:
        claims.append(claim(*args, **options))
        return claims[-1]

    monkeypatch.setattr(reach, "SLOW", -1.0)
    monkeypatch.setattr(store, "claim", made)
    yield claims
    assert any(not one.swept for one in claims), "the test is about claims that read a part"


def ago(seconds: float) -> dt.datetime:
    return timezone.now() - dt.timedelta(seconds=seconds)


def listening(workers: Workers, **changes: Any) -> InThread:
    """A worker that hears, polls seldom, and sleeps."""
    worker = workers.make({"listen": True}, **{"LISTEN_POLL_INTERVAL": 30, "POLL_INTERVAL": 30} | changes)
    worker.worker._intakes[Pool.LOOP].kinds = []  # it would have room for more when the threads have none
    worker.begin()
    wait_until(lambda: worker.worker._claimer._sleeper.asleep, "the worker to fall asleep")
    return worker


def run_one(ways: Callable[[], Job]) -> float:
    """Seconds until a job that comes in some way is done."""
    job = ways()
    began = time.monotonic()
    wait_until(lambda: Job.objects.get(pk=job.pk).status == "done", seconds=10)
    return time.monotonic() - began


def backdated() -> Job:
    return JobFactory(kind="scripted", payload={"steps": []}, run_after=ago(3600))


def moved() -> Job:
    job = JobFactory(kind="scripted", payload={"steps": []}, run_after=timezone.now() + dt.timedelta(hours=1))
    store.reschedule(connection, [job.pk], run_after=ago(3600))
    return job


def moved_by_hand() -> Job:
    job = JobFactory(kind="scripted", payload={"steps": []}, queue="nobody's", run_after=ago(3600))
    Job.objects.filter(pk=job.pk).update(queue="default")
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('pgjobs', 'default')")
    return job


def requeued() -> Job:
    job = JobFactory(kind="scripted", payload={"steps": []}, dead=True, run_after=ago(3600))
    store.requeue(connection, [job.pk])
    return job


def resumed() -> Job:
    pause = PauseFactory(scope="queue", name="held")
    job = JobFactory(kind="scripted", payload={"steps": []}, queue="held", run_after=ago(3600))
    run_one(lambda: JobFactory(kind="scripted", payload={"steps": []}))  # the worker has looked, and passed it over
    store.resume(connection, "queue", pause.name)
    return job


@pytest.mark.parametrize("way", [backdated, moved, moved_by_hand, requeued, resumed])
def test_no_job_lies_behind_for_long(way: Callable[[], Job], workers: Workers, partly: list[store.Claim]) -> None:
    """F66: the price of not reading from the beginning is bounded."""
    JobFactory(kind="scripted", payload={"steps": []}, queue="default", run_after=ago(1))
    listening(workers)
    took = run_one(way)
    print(f"{way.__name__}: {took:.2f} s")
    assert took < AT_MOST


def test_a_late_commit_does_not_lie_behind_for_long(
    workers: Workers, partly: list[store.Claim], connect: Connect
) -> None:
    listening(workers)
    web = connect(autocommit=False)
    [(job, run_after)] = web.execute(
        "INSERT INTO pgjobs_job (kind, payload) VALUES ('scripted', '{\"steps\": []}') RETURNING id, run_after"
    ).fetchall()

    def passed() -> bool:
        run_one(lambda: scripted.enqueue(steps=[]).get())  # others are claimed meanwhile, and move the place on
        levels = json.loads(partly[-1].read or "")["levels"] or []
        return any(dt.datetime.fromisoformat(at) > run_after for _, _, at, _ in levels if at != "-infinity")

    wait_until(passed, "a claim that has read on past it")
    web.commit()
    assert run_one(lambda: Job.objects.get(pk=job)) < AT_MOST


def test_a_drain_reads_everything(workers: Workers, partly: list[store.Claim]) -> None:
    for n in range(30):
        JobFactory(kind="scripted", payload={"steps": []}, priority=n % 3, queue=f"q{n % 4}", run_after=ago(60 - n))
    backlog = [JobFactory(kind="stranger", priority=100).pk]
    workers.make({"drain": True}, THREADS=2).begin().ended()
    assert Job.objects.filter(status="done").count() == 30
    assert list(Job.objects.filter(status="pending").values_list("pk", flat=True)) == backlog


def test_a_lost_connection_loses_the_place(
    workers: Workers, partly: list[store.Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who knows what server is behind the next one."""
    monkeypatch.setattr(reach, "SWEEP", 60.0)  # nothing else makes a worker read from the beginning
    worker = listening(workers)
    run_one(lambda: scripted.enqueue(steps=[]).get())
    before = len(partly)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgjobs claimer'"
            " AND datname = current_database()"
        )
    worker.worker._claimer.wakes.ring()
    wait_until(lambda: any(claim.swept for claim in partly[before:]))


# Asleep ---------------------------------------------------------------------------------------------------------------


def test_a_transaction_that_was_open_when_the_worker_fell_asleep(workers: Workers, connect: Connect) -> None:
    """It saw a worker awake, and told nobody. F48"""
    web = connect(autocommit=False)
    [(job,)] = web.execute(
        "INSERT INTO pgjobs_job (kind, payload) VALUES ('scripted', '{\"steps\": []}') RETURNING id"
    ).fetchall()
    listening(workers)
    time.sleep(3)
    web.commit()
    took = run_one(lambda: Job.objects.get(pk=job))
    print(f"started and done {took:.2f} s after the commit of a transaction that had been open for 3 s")
    assert took < 1.5


def test_a_sleeping_worker_is_told(workers: Workers) -> None:
    """F43"""
    listening(workers)
    times = sorted(run_one(lambda: scripted.enqueue(steps=[]).get()) for _ in range(5))
    assert times[0] < 0.5, times


def test_a_worker_that_is_busy_is_not_told(workers: Workers, connect: Connect) -> None:
    """F68: notifications are for sleepers."""
    listener = connect()
    listener.execute("LISTEN pgjobs")
    worker = listening(workers, THREADS=1)
    long = scripted.enqueue(steps=[["sleep", 1.5]])
    wait_until(lambda: long.get().status == "reserved")
    wait_until(lambda: not worker.worker._claimer._sleeper.asleep)
    list(listener.notifies(timeout=0.2))
    scripted.enqueue(steps=[])
    assert not [n for n in listener.notifies(timeout=0.3) if n.payload]
    wait_until(lambda: worker.recorded.get("done", 0) == 2, seconds=6)


def test_a_worker_that_lost_its_connection_falls_asleep_anew(workers: Workers) -> None:
    worker = listening(workers)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgjobs claimer'"
            " AND datname = current_database()"
        )
    worker.worker._claimer.wakes.ring()
    sleepers = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND granted"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )

    def asleep() -> bool:
        with connection.cursor() as cursor:
            cursor.execute(sleepers)
            return bool(cursor.fetchone() == (1,))

    wait_until(asleep, "the lock to be held again")
    assert run_one(lambda: scripted.enqueue(steps=[]).get()) < AT_MOST
