"""How long to wait before the next attempt: pure arithmetic, formula and jitter apart.

``attempt`` is the number of the attempt that has just failed: 1 for the first.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LONGEST = 366 * 86_400.0
"""No backoff is longer than a year, in seconds."""


class Backoff(Protocol):
    """Anything that turns the number of the failed attempt into seconds."""

    def __call__(self, attempt: int, /) -> float: ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """``min(cap, base · 2^attempt)`` plus a random share of ``jitter``, all in seconds.

    The defaults are those of ``pgjobs_next_run_after``: 5 s · 2^attempt, at most six hours, up to a second of jitter.
    The exponent is clamped before it is used, so that no number of attempts overflows.
    """

    base: float = 5.0
    cap: float = 21_600.0
    jitter: float = 1.0

    def without_jitter(self, attempt: int) -> float:
        """The formula alone."""
        return min(self.cap, self.base * 2.0 ** min(max(attempt, 0), 64))

    def __call__(self, attempt: int, /) -> float:
        return self.without_jitter(attempt) + random.uniform(0, self.jitter)


@dataclass(frozen=True, slots=True)
class Linear:
    """``min(cap, step · attempt)`` plus a random share of ``jitter``, all in seconds."""

    step: float = 60.0
    cap: float = 21_600.0
    jitter: float = 1.0

    def without_jitter(self, attempt: int) -> float:
        """The formula alone."""
        return min(self.cap, self.step * max(attempt, 0))

    def __call__(self, attempt: int, /) -> float:
        return self.without_jitter(attempt) + random.uniform(0, self.jitter)


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same ``delay`` each time, plus a random share of ``jitter``, in seconds."""

    delay: float
    jitter: float = 1.0

    def __call__(self, attempt: int, /) -> float:
        return self.delay + random.uniform(0, self.jitter)


def delay(backoff: Callable[[int], object], attempt: int) -> float:
    """What ``backoff`` says, made safe: seconds from 0 to :data:`LONGEST`.

    Raises ValueError when it answers something that is no number; the caller falls back and logs.
    """
    said = backoff(attempt)
    if hasattr(said, "total_seconds"):
        said = said.total_seconds()
    if isinstance(said, bool) or not isinstance(said, (int, float)) or said != said:
        raise ValueError(f"backoff({attempt}) answered {said!r}; it has to be seconds or a timedelta")
    return min(max(float(said), 0.0), LONGEST)
