"""How long a failed job waits."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from pgjobs import Exponential, Fixed, Linear
from tests.rows import history
from tests.worker_harness import Handlers, Workers


def delay(job: Any) -> float:
    """Seconds from the latest failure to the next attempt."""
    return (job.get().run_after - history(job.id)[-1]["finished_at"]).total_seconds()


def fails(handlers: Handlers, **options: Any) -> Any:
    @handlers(**options)
    def always_fails() -> None:
        raise ValueError("boom")

    return always_fails


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        (Exponential(base=100, cap=1000, jitter=0), 200),
        (Exponential(base=600, cap=1000, jitter=0), 1000),
        (Linear(step=70, jitter=0), 70),
        (Fixed(30, jitter=0), 30),
        (lambda attempt: 40 + attempt, 41),
        (lambda attempt: __import__("datetime").timedelta(minutes=1), 60),
        (lambda attempt: -5, 0),
        (lambda attempt: float("inf"), 366 * 86_400),
    ],
    ids=["exponential", "capped", "linear", "fixed", "callable", "timedelta", "negative", "infinite"],
)
def test_the_handlers_own(workers: Workers, handlers: Handlers, backoff: Any, seconds: float) -> None:
    job = fails(handlers, backoff=backoff, max_attempts=2).enqueue()
    workers.drain({"max_jobs": 1})
    assert delay(job) == pytest.approx(seconds, abs=0.01)


def test_the_setting(workers: Workers, handlers: Handlers) -> None:
    job = fails(handlers).enqueue()
    workers.drain(BACKOFF=Exponential(base=50, cap=1000, jitter=0))
    assert delay(job) == pytest.approx(100, abs=0.01)


def faulty_raise(attempt: int) -> float:
    raise RuntimeError


def faulty_exit(attempt: int) -> float:
    raise SystemExit


@pytest.mark.parametrize(
    "backoff", [faulty_raise, faulty_exit, lambda attempt: "soon", lambda attempt: None, lambda attempt: float("nan")]
)
def test_a_faulty_one_falls_back_and_is_logged(
    workers: Workers, handlers: Handlers, backoff: Any, caplog: pytest.LogCaptureFixture
) -> None:
    job = fails(handlers, backoff=backoff).enqueue()
    workers.drain()
    assert 10 <= delay(job) <= 11.1, "the default: 5 s · 2, and up to a second of jitter"
    assert "always_fails raised or answered nonsense" in caplog.text


def test_jobs_that_fail_together_do_not_come_back_together(workers: Workers, handlers: Handlers) -> None:
    """F106."""
    handler = fails(handlers)
    jobs = [handler.enqueue() for _ in range(60)]
    workers.drain()
    delays = [delay(job) for job in jobs]
    assert min(delays) >= 10
    assert max(delays) <= 11.01
    assert statistics.stdev(delays) > 0.1
