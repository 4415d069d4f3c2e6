"""Cancelling what runs: told within a heartbeat, without LISTEN; made to stop when it does not listen to it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection, connections

from pgjobs import store
from pgjobs.models import Job
from tests.testapp.jobs import scripted_async
from tests.waiting import wait_until

from .conftest import (
    Fleet,
    causes,
    children,
    events,
    measured,
    nothing_is_left,
    script,
    stop_well,
    wait_event,
    wait_status,
)

ENV = {"PGJOBS_TIMEOUT_GRACE": "1"}
BEAT = 1.0
"""The heartbeat of these workers."""


def cancel(id_: int) -> str:
    return store.cancel(connection, [id_], by="a test")[id_]


@pytest.mark.parametrize(
    ("then", "status"),
    [
        ("return", "done"),
        pytest.param("raise", "cancelled", marks=pytest.mark.slow),
        pytest.param("cancel", "cancelled", marks=pytest.mark.slow),
    ],
)
def test_a_handler_that_asks_learns_it_within_a_heartbeat(run_jobs: Fleet, then: str, status: str) -> None:
    """F24: it may end as it likes: a normal return is done, all else is cancelled."""
    one = run_jobs("--threads", 1, "--no-listen", env=ENV)
    id_ = script(["until_cancelled", 30, then])
    wait_event(id_, "start")
    with measured("from the request until the handler knows", BEAT + 1.5):
        assert cancel(id_) == "requested"
        wait_event(id_, "saw cancel")
    assert wait_status(id_, status).attempts == 1
    stop_well(one)


@pytest.mark.parametrize(
    "steps", [[["spin"]], pytest.param([["pg_sleep"]], marks=pytest.mark.slow)], ids=["busy loop", "slow query"]
)
def test_one_that_does_not_ask_is_interrupted_after_a_grace(run_jobs: Fleet, steps: list[Any]) -> None:
    one = run_jobs("--threads", 1, env=ENV)
    id_ = script(*steps)
    wait_event(id_, "start")
    with measured("heartbeat 1 s and grace 1 s, until a deaf handler is stopped", BEAT + 1 + 2):
        cancel(id_)
        wait_status(id_, "cancelled")
    assert [outcome for _, outcome, _ in causes(id_)] == ["cancelled"]
    assert len(events(id_, "end")) == 1
    stop_well(one)


@pytest.mark.slow
def test_one_that_cannot_be_interrupted_costs_its_process(run_jobs: Fleet) -> None:
    one = run_jobs("--threads", 2, env=ENV)
    neighbour, id_ = script(["sleep", 5]), script(["block"])
    wait_event(id_, "start")
    wait_event(neighbour, "start")
    [before] = children(one.popen.pid)
    cancel(id_)
    wait_status(id_, "cancelled")
    later = script(["return", 1])
    wait_status(later, "done")
    assert events(later, "start")[0].pid != before
    assert wait_status(neighbour, "done").attempts == 1
    stop_well(one)


@pytest.mark.parametrize(
    "steps", [pytest.param([["until_cancelled"]], marks=pytest.mark.slow), [["forever"]]], ids=["asks", "does not ask"]
)
def test_a_coroutine(run_jobs: Fleet, steps: list[Any]) -> None:
    one = run_jobs("--threads", 1, env=ENV)
    id_ = scripted_async.enqueue(steps=steps).id
    wait_event(id_, "start")
    cancel(id_)
    status = "done" if steps == [["until_cancelled"]] else "cancelled"
    wait_status(id_, status)
    stop_well(one)


@pytest.mark.slow
def test_a_cancelled_job_that_its_worker_takes_to_the_grave_stays_cancelled(run_jobs: Fleet) -> None:
    """Cancelled and the process killed; cancelled and the lease lapsed: neither runs again."""
    one = run_jobs("--threads", 2, env=ENV)
    ids = [script(["sleep", 30]) for _ in range(2)]
    for id_ in ids:
        wait_event(id_, "start")
        cancel(id_)
    one.kill_group()
    other = run_jobs("--threads", 2, env=ENV)
    for id_ in ids:
        wait_status(id_, "cancelled")
        assert len(events(id_, "start")) == 1
    stop_well(other)


def test_the_race_of_cancel_and_claim(run_jobs: Fleet) -> None:
    """F24: whoever comes first, a cancelled job has either never run, or was told."""
    one = run_jobs("--threads", 4, env=ENV)
    ids: list[int] = []
    answers: dict[int, str] = {}
    more = threading.Event()

    def cancel_all() -> None:
        try:
            n = 0
            while n < len(ids) or not more.is_set():
                if n < len(ids):
                    answers[ids[n]] = cancel(ids[n])
                    n += 1
                else:
                    more.wait(0.0005)
        finally:
            connections.close_all()

    canceller = threading.Thread(target=cancel_all)
    canceller.start()
    ids.extend(script(["until_cancelled", 20, "cancel"]) for _ in range(300))
    more.set()
    canceller.join()
    wait_until(lambda: not Job.objects.filter(status__in=("pending", "reserved")).exists(), "the end", 60)
    counts = {answer: list(answers.values()).count(answer) for answer in set(answers.values())}
    print(f"300 races of cancel and claim: {counts}")
    assert counts.keys() <= {"cancelled", "requested"}
    for id_, answer in answers.items():
        assert Job.objects.get(pk=id_).status == "cancelled"
        assert len(events(id_, "start")) == 0 or answer == "requested"
        if events(id_, "start"):
            assert len(events(id_, "saw cancel")) == 1, "told"
    nothing_is_left()
    stop_well(one)
