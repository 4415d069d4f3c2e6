"""What run_jobs writes in a project that configures no logging."""

from __future__ import annotations

import re

import pytest

from tests.process.conftest import Start
from tests.testapp.jobs import scripted

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}"


@pytest.mark.parametrize(
    ("verbosity", "expected"), [(0, ["dead"]), (1, ["dead", "cancelled"]), (2, ["dead", "cancelled", "done"])]
)
def test_what_ended_badly_is_told_with_its_time(run_jobs: Start, verbosity: int, expected: list[str]) -> None:
    scripted.using(max_attempts=1).enqueue(steps=[["raise", "ValueError", "boom"]])
    scripted.enqueue(steps=[["cancel"]])
    scripted.enqueue(steps=[])
    worker = run_jobs("--drain", "-v", verbosity)
    assert worker.wait() == 0
    lines = re.findall(rf"^{TIME} [A-Z]+ +pgjobs: job \d+ scripted: ([a-z]+)", worker.output, re.M)
    assert sorted(set(lines) & {"dead", "cancelled", "done"}) == sorted(expected), worker.output
