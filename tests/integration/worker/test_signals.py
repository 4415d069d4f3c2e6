"""Signals: one for each recorded ending, none for a lost attempt, and no receiver that harms (F146)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pgjobs import signals
from pgjobs.models import Job
from pgjobs.worker import announcer
from tests.integration.worker.conftest import steal
from tests.testapp import audit, script
from tests.testapp.jobs import scripted, scripted_now, write_note
from tests.testapp.models import Note
from tests.waiting import wait_until
from tests.worker_harness import Workers

ALL = {
    "started": signals.job_started,
    "finished": signals.job_finished,
    "retried": signals.job_retried,
    "dead": signals.job_dead,
}


class Seen(list[tuple[str, int, int]]):
    """(signal, job, attempt) of each that was received."""

    def count_of(self, name: str) -> int:
        return sum(1 for one, _, _ in self if one == name)


@pytest.fixture
def seen() -> Iterator[Seen]:
    found, receivers = Seen(), []
    for name, signal in ALL.items():

        def receive(sender: str, job: Any, attempt: int, exc_info: Any, *, name: str = name, **_: Any) -> None:
            assert sender == job.kind
            assert (exc_info is not None) == (name in ("retried", "dead"))
            found.append((name, job.id, attempt))

        signal.connect(receive, weak=False)
        receivers.append((signal, receive))
    yield found
    for signal, receive in receivers:
        signal.disconnect(receive)


@pytest.fixture
def receiver() -> Iterator[Any]:
    """Connects a receiver until the end of the test."""
    connected = []

    def connect(signal: Any, function: Any) -> None:
        signal.connect(function, weak=False)
        connected.append((signal, function))

    yield connect
    for signal, function in connected:
        signal.disconnect(function)


def test_counts_equal_the_outcomes(workers: Workers, seen: Seen) -> None:
    good = scripted.enqueue(steps=[["return", 1]])
    flaky = scripted_now.enqueue(steps=[["raise"]], then=[[["return"]]])
    hopeless = scripted_now.using(max_attempts=2).enqueue(steps=[["raise"]])
    failed = scripted.enqueue(steps=[["fail"]])
    scripted.enqueue(steps=[["snooze", 60]])
    scripted.enqueue(steps=[["cancel"]])
    workers.drain(THREADS=1)
    assert sorted(one for one in seen if one[0] == "finished") == [("finished", good.id, 1), ("finished", flaky.id, 2)]
    assert sorted(one for one in seen if one[0] == "retried") == [("retried", flaky.id, 1), ("retried", hopeless.id, 1)]
    assert sorted(one for one in seen if one[0] == "dead") == [("dead", hopeless.id, 2), ("dead", failed.id, 1)]
    assert seen.count_of("started") == 8


def test_a_signal_comes_after_the_write(workers: Workers, receiver: Any) -> None:
    statuses: list[str] = []
    job = scripted.enqueue(steps=[])
    receiver(signals.job_finished, lambda **_: statuses.append(job.get().status))
    workers.drain()
    assert statuses == ["done"]


def test_none_for_a_lost_attempt(workers: Workers, seen: Seen) -> None:
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1]])
        worker = workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        steal(job.id)
        open_gate()
        worker.wait_recorded(1)
        worker.stop()
    assert seen == [("started", job.id, 1)]


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("name", ALL)
def test_a_receiver_that_raises(
    workers: Workers, receiver: Any, name: str, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def raise_(**_: Any) -> None:
        raise error("receiver")

    receiver(ALL[name], raise_)
    job = scripted_now.using(max_attempts=2).enqueue(steps=[["raise"]], then=[[["return"]]])
    dead = scripted_now.using(max_attempts=1).enqueue(steps=[["raise"]])
    workers.drain(THREADS=1)
    assert (job.get().status, dead.get().status) == ("done", "dead")
    assert error.__name__ in caplog.text or "receiver" in caplog.text


def test_a_slow_receiver_delays_nothing(workers: Workers, receiver: Any) -> None:
    release, first = threading.Event(), threading.Event()

    def slow(**_: Any) -> None:
        first.set()
        release.wait(30)

    receiver(signals.job_finished, slow)
    worker = workers.start(THREADS=1)
    for _ in range(20):
        scripted.enqueue(steps=[])
    try:
        wait_until(lambda: worker.recorded.get("done") == 20)
        assert first.is_set()
    finally:
        release.set()


def test_receivers_that_are_far_behind_cost_no_job_its_lease(
    workers: Workers, receiver: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No more jobs are claimed; those that are held are beaten and recorded."""
    monkeypatch.setattr(announcer, "MOST", 5)
    release = threading.Event()
    receiver(signals.job_finished, lambda **_: release.wait(30))
    worker = workers.start(THREADS=2, LEASE=1.5)
    try:
        for _ in range(40):
            scripted.enqueue(steps=[])
        wait_until(lambda: "no jobs are claimed" in caplog.text)
        worker.wait_recorded(6)
        wait_until(lambda: not Job.objects.filter(status="reserved").exists())
        time.sleep(2)  # longer than a lease
        assert Job.objects.filter(status="pending", attempts=0).exists()
    finally:
        release.set()
    worker.wait_recorded(40)
    assert Job.objects.filter(status="done", attempts=1).count() == 40
    assert "claimed again" in caplog.text


def test_a_receiver_may_use_the_database_and_leave_it_untidy(workers: Workers, receiver: Any) -> None:
    from django.db import transaction

    def untidy(**_: Any) -> None:
        Note.objects.create(text="from a receiver")
        transaction.set_autocommit(False)

    receiver(signals.job_finished, untidy)
    for _ in range(3):
        write_note.enqueue(text="from a job")
    workers.drain()
    assert Note.objects.filter(text="from a receiver").count() == 3


def test_a_dead_letter_of_a_lost_worker_is_told(workers: Workers, receiver: Any) -> None:
    from tests.factories import JobFactory

    told: list[tuple[int, Any]] = []
    receiver(signals.job_dead, lambda job, exc_info, **_: told.append((job.id, exc_info)))
    job = JobFactory(lapsed=True, max_attempts=1)
    worker = workers.start()
    wait_until(lambda: told)
    worker.stop()
    assert told == [(job.pk, None)]
