"""beat: the keeper's one statement."""

from __future__ import annotations

import datetime as dt
import os
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Job, Worker
from tests.conftest import Connect
from tests.factories import JobFactory, RerunFactory, WorkerFactory
from tests.integration.store.conftest import Hold
from tests.rows import claim, columns, database_now, held, lapse

pytestmark = pytest.mark.django_db

WHO = store.Beat("w-1", "host", os.getpid(), ["a", "b"], ["c"], ["x"], 4)


def beat(jobs: list[store.ClaimedJob] | None = None, **more: Any) -> list[store.Event]:
    options = {
        "ids": [j.id for j in jobs or []],
        "leases": [j.lease for j in jobs or []],
        "lease": 15.0,
        "stopping": False,
    }
    return store.beat(connection, WHO, **options | more)


def events(jobs: list[store.ClaimedJob] | None = None, **more: Any) -> list[tuple[str, int | None]]:
    return [(event.event, event.id) for event in beat(jobs, **more)]


def test_a_worker_has_a_row_for_people() -> None:
    before = database_now()
    assert beat([], ids=[1, 2], leases=[1, 2])[0].event == "lost"
    worker = Worker.objects.get()
    assert (worker.name, worker.host, worker.pid, worker.threads) == ("w-1", "host", os.getpid(), 4)
    assert (worker.queues, worker.exclude_queues, worker.kinds) == (["a", "b"], ["c"], ["x"])
    assert (worker.running, worker.stopping) == (2, False)
    assert before <= worker.beat_at <= database_now()
    beat([], stopping=True)
    again = Worker.objects.get()
    assert (again.running, again.stopping, again.started_at) == (0, True, worker.started_at)
    assert again.beat_at > worker.beat_at
    store.forget_worker(connection, "w-1")
    assert not Worker.objects.exists()


def test_leases_are_extended_and_only_what_is_new_is_told() -> None:
    jobs = [held(), held(), held(), held()]
    store.cancel(connection, [jobs[1].id])
    Job.objects.filter(pk=jobs[2].id).delete()
    before = database_now()
    assert events(jobs, lease=60.0) == [("cancel", jobs[1].id), ("lost", jobs[2].id)]
    for job in (jobs[0], jobs[1], jobs[3]):
        assert columns(job.id)["reserved_until"] >= before + dt.timedelta(minutes=1)


def test_a_busy_row_is_told_and_the_rest_is_extended(hold_row: Hold) -> None:
    jobs = [held(), held()]
    hold_row(jobs[0].id)
    lapse(jobs[1].id)
    assert events(jobs) == [("busy", jobs[0].id)]


def test_what_others_lost_is_reaped_but_not_what_this_beat_extends() -> None:
    mine, gone = held(), JobFactory(lapsed=True, queue="q", kind="k", worker="w-9", max_attempts=1)
    lapse(mine.id)
    [event] = beat([mine])
    assert event == store.Event("reaped", gone.pk, "k", "q", "dead", 1, "w-9", None)
    assert columns(mine.id)["status"] == "reserved"


def test_what_this_worker_no_longer_tells_is_reaped_too() -> None:
    """F5: a beat extends what is said to run, not all that bears the worker's name."""
    forgotten = held()
    lapse(forgotten.id)
    assert events([]) == [("reaped", forgotten.id)]


def test_when_the_first_lease_of_another_worker_lapses_is_told() -> None:
    own = held()
    assert beat([own]) == []
    JobFactory(reserved=True, worker="w-2", reserved_until=timezone.now() + dt.timedelta(seconds=50))
    JobFactory(reserved=True, worker="w-3", reserved_until=timezone.now() + dt.timedelta(seconds=40))
    [event] = beat([own])
    assert event.event == "next"
    assert event.seconds == pytest.approx(40, abs=5)


def test_wishes_left_over_are_granted() -> None:
    """Of a holder that ended in the very moment of the wish's commit."""
    RerunFactory(dedupe_key="k", payload={"n": 1})
    RerunFactory(dedupe_key="held")
    JobFactory(dedupe_key="held", scheduled=True)
    beat()
    assert [job.payload for job in (Job.objects.get(dedupe_key="k"),)] == [{"n": 1}]
    assert len(claim()) == 1


def test_rows_of_workers_that_are_long_gone_are_removed() -> None:
    WorkerFactory(name="old", beat_at=timezone.now() - dt.timedelta(hours=25))
    WorkerFactory(name="silent", beat_at=timezone.now() - dt.timedelta(hours=23))
    beat()
    assert set(Worker.objects.values_list("name", flat=True)) == {"silent", "w-1"}


@pytest.mark.parametrize("how", ["SELECT 1 FROM pgjobs_worker FOR UPDATE", "DELETE FROM pgjobs_worker"])
def test_leases_do_not_wait_for_somebody_who_holds_the_rows_for_people(
    how: str, transactional_db: None, connect: Connect
) -> None:
    """Correctness does not depend on them."""
    beat()
    WorkerFactory(name="old", beat_at=timezone.now() - dt.timedelta(hours=25))
    job = held()
    lapse(job.id)
    holder = connect(autocommit=False)
    holder.execute(how)
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '1s'")
    assert events([job]) == []
    holder.rollback()
    assert columns(job.id)["reserved_until"] > database_now()
    with connection.cursor() as cursor:
        cursor.execute("RESET lock_timeout")


SUSPECT = {"suspect": True, "kind": "x", "queue": "a"}


def test_suspects_that_a_process_could_claim_are_told() -> None:
    """Its supervisor starts a process for them."""
    JobFactory(**SUSPECT)
    assert ("suspects", None) in events()


@pytest.mark.parametrize(
    "but",
    [
        {"suspect": False},
        {"kind": "of another service"},
        {"queue": "served by others"},
        {"queue": "c"},
        {"scheduled": True},
        {"reserved": True},
        {"expires_at": timezone.now() - dt.timedelta(hours=1)},
    ],
    ids=lambda but: next(iter(but)),
)
def test_suspects_that_it_could_not_claim_are_not(but: dict[str, Any]) -> None:
    JobFactory(**SUSPECT | but)
    assert ("suspects", None) not in events()


@pytest.mark.parametrize(("scope", "name"), [("queue", "a"), ("kind", "x")])
def test_nor_are_those_that_are_paused(scope: str, name: str) -> None:
    """A process would be started at every beat, and find nothing."""
    JobFactory(**SUSPECT)
    store.pause(connection, scope, name, by="a test")
    assert ("suspects", None) not in events()
    store.pause(connection, scope, name, by="a test", until=timezone.now() - dt.timedelta(seconds=1))
    assert ("suspects", None) in events(), "that pause is over"
