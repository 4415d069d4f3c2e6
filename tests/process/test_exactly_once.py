"""How often a job's effect happens: once while nobody dies, whoever claims; and when somebody does (F20, F151, F158)."""

from __future__ import annotations

from typing import Any

import pytest

from pgjobs import enqueue_many
from pgjobs.models import Job
from tests.process.conftest import Start
from tests.testapp.jobs import scripted_atomic, scripted_now, write_note
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


def test_eight_processes_run_two_thousand_jobs_each_exactly_once(run_jobs: Start) -> None:
    enqueue_many(write_note.prepare(text=str(n)) for n in range(2000))
    for _ in range(2):  # two supervisors that know nothing of each other
        run_jobs("--processes", 4, "--threads", 2)
    wait_until(lambda: Job.objects.filter(status="done").count() == 2000, "all jobs", seconds=60)
    assert sorted(Note.objects.values_list("text", flat=True)) == sorted(map(str, range(2000)))
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert Job.objects.values("worker").distinct().count() > 1
