"""The chaos test in its short form; the long one is ``python -m tests.chaos --minutes 10 --seed 7``."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until
from tests.worker_harness import BASE_DIR

MARK = "CHAOS_TEST_MARK"


def start(*args: str, mark: str = "") -> subprocess.Popen[str]:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST_", "PGJOBS_"))
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos", *args],
        cwd=BASE_DIR,
        env=environment | {MARK: mark},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_half_a_minute_of_chaos() -> None:
    """About 35 s; longer on a busy machine, for what is left over at the end has to end."""
    chaos = start("--minutes", "0.5", "--seed", "7")
    output, _ = chaos.communicate()
    print(output)
    assert chaos.returncode == 0, output
    assert "all promises were kept" in output


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_interrupted_it_leaves_nothing_running(number: int) -> None:
    """Whoever loses patience has no servers and workers to look for."""
    mark = uuid.uuid4().hex
    chaos = start("--minutes", "5", "--seed", "7", mark=mark)
    try:
        wait_until(lambda: len(list(workers(mark))) >= 4, "the supervisors and their processes", 60)
        assert list(servers(chaos.pid))
        chaos.send_signal(number)
        output, _ = chaos.communicate(timeout=60)
        print(output)
        assert chaos.returncode == 130
        assert "interrupted: seed 7" in output
        assert not list(workers(mark))
        assert not list(servers(chaos.pid))
        assert not list(Path("/var/tmp").glob(f"pgjobs-server-{chaos.pid}-*"))  # noqa: S108
    finally:
        for pid in workers(mark):
            os.kill(pid, signal.SIGKILL)
        if found := re.search(r"logs in (\S+)", output if chaos.returncode == 130 else ""):
            subprocess.run(["rm", "-r", found[1]], check=True)


def workers(mark: str) -> Iterator[int]:
    """Processes of ``run_jobs`` that have our mark in their environment."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            marked = f"{MARK}={mark}".encode() in (place / "environ").read_bytes()
            if marked and b"run_jobs" in (place / "cmdline").read_bytes():
                yield int(place.name)


def servers(chaos: int) -> Iterator[int]:
    """Processes of a PostgreSQL that a process started for itself."""
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"pgjobs-server-{chaos}-".encode() in (place / "cmdline").read_bytes():
                yield int(place.name)
