"""The chaos test in its short form; the long one is ``python -m tests.chaos --minutes 10 --seed 7``."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.worker_harness import BASE_DIR


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_half_a_minute_of_chaos() -> None:
    """About 35 s; longer on a busy machine, for what is left over at the end has to end."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST_", "PGJOBS_"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos", "--minutes", "0.5", "--seed", "7"],
        cwd=BASE_DIR,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    assert "all promises were kept" in done.stdout
