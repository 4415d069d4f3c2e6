"""Handlers that are made to stop, and what that leaves behind: nothing."""

from __future__ import annotations

import contextlib
import cProfile
import sys
import threading

import pytest

from pgjobs.worker.slot import Interrupted, Slot
from tests.rows import history
from tests.testapp.jobs import scripted, scripted_now
from tests.waiting import wait_until
from tests.worker_harness import Workers

TIMES = {"TIMEOUT_GRACE": 0.5}


@pytest.mark.parametrize("verb", ["spin", "pg_sleep"])
def test_a_job_past_its_time_is_stopped_and_tried_again(workers: Workers, verb: str) -> None:
    """Python code and SQL stop at once."""
    job = scripted_now.using(timeout=0.3, max_attempts=2).enqueue(steps=[[verb, 30]])
    worker = workers.start(**TIMES)
    wait_until(lambda: job.get().status == "dead")
    worker.stop()
    assert [h["outcome"] for h in history(job.id)] == ["timeout", "timeout"]


def test_the_next_job_on_the_slot_is_not_hit(workers: Workers) -> None:
    slow = [scripted.using(timeout=0.1, max_attempts=1).enqueue(steps=[["spin", 30]]) for _ in range(5)]
    good = [scripted.using(priority=-1).enqueue(steps=[["note", "fine"], ["return", 1]]) for _ in range(20)]
    workers.drain(THREADS=1, **TIMES)
    assert {job.get().status for job in slow} == {"dead"}
    assert {job.get().status for job in good} == {"done"}


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="later interpreters look into each thread by itself")
def test_a_profiled_worker_does_not_hang(workers: Workers) -> None:
    """A withdrawn exception left the interpreter looking for it, which a profiler never survived."""
    scripted.enqueue(steps=[["return", 1]])
    scripted.using(timeout=0.1, max_attempts=1).enqueue(steps=[["spin", 30]])
    workers.drain(**TIMES)
    ended = threading.Event()

    def profiled() -> None:
        profile = cProfile.Profile()
        profile.enable()
        for _ in range(3):
            threading.current_thread()  # calls of Python functions: that is where it hung
        profile.disable()
        ended.set()

    threading.Thread(target=profiled, daemon=True).start()
    assert ended.wait(10)


def test_an_interruption_reaches_its_handler_or_nobody() -> None:
    """A race, a thousand times: one thread arms and disarms, the other interrupts whatever is there."""

    class Held:
        pass

    slot, stop = Slot(), threading.Event()
    current: list[object] = []
    outside: list[str] = []

    def run() -> None:
        slot.adopt({})
        for _ in range(1000):
            held = Held()
            try:
                with contextlib.suppress(BaseException):
                    slot.arm(held)  # type: ignore[arg-type]
                    current[:] = [held]
                    for _ in range(50):
                        pass
                slot.disarm()
            except Interrupted:
                slot.disarm()
            try:
                for _ in range(50):
                    pass
            except Interrupted:
                outside.append("hit")
        stop.set()

    thread = threading.Thread(target=run)
    thread.start()
    while not stop.is_set():
        for held in current:
            slot.interrupt(held)  # type: ignore[arg-type]
    thread.join()
    assert outside == []
