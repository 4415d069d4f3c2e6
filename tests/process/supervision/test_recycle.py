"""Processes that make room for new ones: by jobs, by memory, by age; and shares of --max-jobs."""

from __future__ import annotations

import pytest

from pgjobs.models import Job
from tests.testapp.models import Audit
from tests.waiting import wait_until

from .conftest import Fleet, causes, children, nothing_is_left, script, stop_well, wait_event, wait_status


@pytest.mark.parametrize(
    ("limit", "jobs"),
    [
        (("--recycle-jobs", 20), 50),
        pytest.param(("--recycle-lifetime", 1), 100, marks=pytest.mark.slow),
        pytest.param(("--recycle-rss", 1), 10, marks=pytest.mark.slow),
    ],
    ids=["jobs", "lifetime", "rss"],
)
def test_a_recycled_process_loses_nothing(run_jobs: Fleet, limit: tuple[str, int], jobs: int) -> None:
    """F53: its jobs end, its buffer is given back, its replacement works already; no attempt is burnt. (A process without a job
    exceeds 1 MiB already: it does one at least.)
    """
    ids = [script(["sleep", 0.01]) for _ in range(jobs)]
    one = run_jobs("--threads", 2, *limit)
    wait_until(lambda: not Job.objects.exclude(status="done").exists(), "the end", 60)
    ids.append(script(["sleep", 1]))
    wait_status(ids[-1], "done")
    wait_until(lambda: "retires" in one.output, "its replacement")
    ids.append(script(["return", 1]))
    wait_status(ids[-1], "done")
    pids = set(Audit.objects.values_list("pid", flat=True))
    print(f"{limit}: {len(pids)} processes for {len(ids)} jobs")
    assert len(pids) > 1
    assert not [id_ for id_ in ids if causes(id_)]
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert Audit.objects.filter(event="start").count() == len(ids)
    assert "died" not in one.output
    nothing_is_left()
    stop_well(one)


@pytest.mark.slow
def test_a_long_job_holds_up_no_replacement(run_jobs: Fleet) -> None:
    """The old process ends with its last job; the new one starts when the old one retires."""
    one = run_jobs("--threads", 2, "--recycle-jobs", 5)
    slow = script(["sleep", 8])
    wait_event(slow, "start")
    for id_ in [script(["return", 1]) for _ in range(30)]:
        wait_status(id_, "done")
    assert len({a.pid for a in Audit.objects.filter(event="start")}) > 1
    assert Job.objects.get(pk=slow).status == "reserved", "the others were done beside it"
    assert len(children(one.popen.pid)) > 1
    assert wait_status(slow, "done").attempts == 1
    stop_well(one)


def test_max_jobs_is_shared_out(run_jobs: Fleet) -> None:
    """F53: exactly so many, by all processes together; none is left stranded."""
    for _ in range(40):
        script(["sleep", 0.01])
    one = run_jobs("--threads", 2, "--processes", 3, "--max-jobs", 25)
    assert one.wait() == 0, one.output
    assert Job.objects.filter(status="done").count() == 25
    assert Job.objects.filter(status="pending", attempts=0).count() == 15


def test_a_drain_leaves_nothing_that_is_due(run_jobs: Fleet) -> None:
    """Not what a process that died had in its buffer, nor what a suspect's retry makes due after the others have ended."""
    ids = [script(["sleep", 0.01]) for _ in range(60)]
    poison = script(["os_exit", 3], then=[[["raise"]], [["return", 1]]])
    one = run_jobs("--threads", 2, "--processes", 2, "--drain")
    assert one.wait(60) == 0, one.output
    assert {Job.objects.get(pk=id_).status for id_ in ids} == {"done"}
    assert Job.objects.get(pk=poison).status == "done"
    nothing_is_left()
