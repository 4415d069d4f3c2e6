"""When a process makes room for a new one."""

from __future__ import annotations

from itertools import count

import pytest

from pgjobs.worker import recycle
from pgjobs.worker.recycle import Recycle


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock."""
    time = [1000.0]
    monkeypatch.setattr(recycle.time, "monotonic", lambda: time[0])
    return time


def test_processes_do_not_go_together() -> None:
    """Their limits differ: up to a tenth less than what was asked for, and never more."""
    counts = [next(n for n in count() if one.reason(n)) for one in (Recycle(1000, None, None) for _ in range(50))]
    print(f"--recycle-jobs 1000: between {min(counts)} and {max(counts)}")
    assert 900 <= min(counts) < max(counts) <= 1000
    assert len(set(counts)) > 10


def test_after_its_lifetime(now: list[float]) -> None:
    one = Recycle(None, None, 100)
    now[0] += 89
    assert one.reason(5) == ""
    now[0] += 12
    assert one.reason(0) == "101 s old"


def test_by_memory_it_does_one_job_at_least(now: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one whose limit the bare process exceeds would be replaced for ever, and do nothing."""
    monkeypatch.setattr(recycle, "memory", lambda: 500.0)
    one = Recycle(None, 400, None)
    assert one.reason(0) == ""
    assert one.reason(1) == "500 MiB of memory"
    assert Recycle(None, 600, None).reason(1) == ""


def test_memory_is_measured() -> None:
    before = recycle.memory()
    much = bytearray(64 * 2**20)
    much[::4096] = b"x" * len(much[::4096])  # touched, so that it is there
    assert 50 < recycle.memory() - before < 100


def test_no_limit_is_none() -> None:
    assert Recycle(None, None, None).reason(10**9) == ""
