"""A worker dies between the effect and the finish (F151, F158): at least once; with ``atomic=True``, exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from pgjobs.models import Job
from tests.process.conftest import Start
from tests.testapp.jobs import scripted_atomic, scripted_now
from tests.testapp.models import Note
from tests.waiting import wait_until


@pytest.mark.parametrize(("handler", "times"), [(scripted_now, 2), (scripted_atomic, 1)], ids=["plain", "atomic"])
def test_killed_between_the_effect_and_the_finish(run_jobs: Start, handler: Any, times: int) -> None:
    effect = [["note", "effect"], ["enqueue", "echo", {}]]
    job = handler.enqueue(steps=[*effect, ["kill"]], then=[effect])
    run_jobs()
    wait_until(lambda: job.get().status == "done", "the second attempt")
    wait_until(lambda: Job.objects.filter(kind="echo", status="done").count() == times)
    assert job.get().attempts == 2
    assert Note.objects.count() == times
