"""How long to wait."""

from __future__ import annotations

import datetime as dt
import statistics
from typing import Any

import pytest

from pgjobs import Exponential, Fixed, Linear
from pgjobs.backoff import LONGEST, delay

HUGE = 10**9


@pytest.mark.parametrize(
    ("backoff", "attempt", "seconds"),
    [
        (Exponential(), 1, 10), (Exponential(), 2, 20), (Exponential(), 12, 20480), (Exponential(), 13, 21600),
        (Exponential(), HUGE, 21600), (Exponential(), 0, 5), (Exponential(), -HUGE, 5),
        (Exponential(base=1, cap=10), 3, 8), (Exponential(base=1, cap=10), 4, 10), (Exponential(base=0), HUGE, 0),
        (Linear(), 1, 60), (Linear(), 5, 300), (Linear(step=10, cap=25), 3, 25), (Linear(), HUGE, 21600), (Linear(), -1, 0),
    ],
)  # fmt: skip
def test_the_formula_is_clamped_and_never_overflows(
    backoff: Exponential | Linear, attempt: int, seconds: float
) -> None:
    assert backoff.without_jitter(attempt) == seconds


@pytest.mark.parametrize("backoff", [Exponential(), Linear(step=10), Fixed(10)])
def test_jitter_is_drawn_anew_and_stays_within_its_second(backoff: Any) -> None:
    """F106"""
    found = [backoff(1) for _ in range(1000)]
    assert 10 <= min(found)
    assert max(found) <= 11
    assert 0.2 < statistics.stdev(found) < 0.4


@pytest.mark.parametrize("backoff", [Exponential(jitter=0), Linear(jitter=0), Fixed(10, jitter=0)])
def test_no_jitter(backoff: Any) -> None:
    assert len({backoff(1) for _ in range(10)}) == 1


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        (5, 5.0), (0, 0.0), (-5, 0.0), (1e300, LONGEST), (float("inf"), LONGEST), (-float("inf"), 0.0),
        (dt.timedelta(minutes=1), 60.0), (dt.timedelta.max, LONGEST),
    ],
)  # fmt: skip
def test_what_a_callable_says_is_made_safe(said: Any, seconds: float) -> None:
    assert delay(lambda attempt: said, 1) == seconds


@pytest.mark.parametrize("said", [None, "5", float("nan"), True, [], dt.datetime(2026, 1, 1, tzinfo=dt.UTC)])
def test_what_is_no_duration_is_refused(said: Any) -> None:
    with pytest.raises(ValueError, match=r"^backoff\(3\) answered .*it has to be seconds or a timedelta"):
        delay(lambda attempt: said, 3)


def test_it_is_asked_with_the_number_of_the_failed_attempt() -> None:
    assert delay(lambda attempt: attempt * 7, 3) == 21
