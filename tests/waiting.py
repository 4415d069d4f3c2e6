"""Waiting for events: with a deadline, never for a duration."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str = "", seconds: float = 20) -> T:
    """Ask until the answer is true, and return it; AssertionError when it stays false for ``seconds``."""
    deadline = time.monotonic() + seconds
    pause = 0.001
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds} s in vain for {what or condition}")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
    return answer


def wait_until_blocked(observer: psycopg.Connection[Any], pid: int) -> None:
    """Until the backend ``pid`` waits for a lock that another one holds."""
    wait_until(
        lambda: observer.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone()[0],  # type: ignore[index]
        f"backend {pid} to wait for a lock",
    )
