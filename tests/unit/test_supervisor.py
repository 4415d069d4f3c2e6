"""Moments of the supervisor that no process test can hit on purpose."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from pgjobs.conf import Settings
from pgjobs.worker.process import Options
from pgjobs.worker.supervisor import Supervisor


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    """One that handles SIGTERM, and does not run."""
    one = Supervisor(Settings(), Options(), lambda line: None)
    before = signal.signal(signal.SIGTERM, one._on_signal)
    yield one
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_signal_around_the_fork_reaches_the_new_process(
    supervisor: Supervisor, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler knows only registered processes: one that is forked just then would run on until the deadline."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as new:

        def fork() -> int:
            if when == "during":
                os.kill(os.getpid(), signal.SIGTERM)
            return new.pid

        monkeypatch.setattr(os, "fork", fork)
        if when == "before":
            os.kill(os.getpid(), signal.SIGTERM)
        supervisor._fork(lambda: 0, place=0, worker="token", board=None)
        try:
            assert new.wait(10) == -signal.SIGTERM
        finally:
            new.kill()
