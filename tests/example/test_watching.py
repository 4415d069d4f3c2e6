"""What the demo says of jobs: how they stand, what is not as it should be, what it takes back."""

from __future__ import annotations

import pytest

from example_project.demo import showing
from example_project.demo.flows import Step
from example_project.demo.watching import look, take_back
from pgjobs.models import Job
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db


def test_a_job_that_ended_as_it_should_is_no_complaint() -> None:
    job = JobFactory(dead=True, attempts=4)
    seen = look(Step("CRM", job.kind, job.pk, status="dead", attempts=4))
    assert (seen.ended, seen.status, seen.attempts, seen.complaint()) == (True, "dead", 4, "")
    assert seen.error == job.last_error.splitlines()[0]


@pytest.mark.parametrize(
    ("trait", "expected", "complaint"),
    [
        ({}, {}, "1 pending"),
        ({"dead": True}, {}, "1 dead"),
        ({"done": True}, {"attempts": 3}, "1 attempts"),
        ({"done": True}, {"doubt": lambda: "no mail was sent"}, "no mail was sent"),
        ({"reserved": True}, {"status": "dead"}, "1 reserved"),
    ],
)
def test_what_is_not_as_it_should_be_is_said(
    trait: dict[str, object], expected: dict[str, object], complaint: str
) -> None:
    job = JobFactory(**trait)
    seen = look(Step("flow", job.kind, job.pk, **expected))
    assert seen.complaint() == complaint
    with (out := showing.console()).capture() as printed:
        out.print(showing.complaints([seen]))
    assert complaint in printed.get()


def test_a_job_that_is_gone_is_a_complaint() -> None:
    assert look(Step("flow", "kind", 4711)).complaint() == "no job"


def test_of_many_all_have_to_end() -> None:
    root = JobFactory(done=True)
    JobFactory(done=True, kind="child", parent_id=root.pk)
    waiting = JobFactory(kind="child", parent_id=root.pk)
    step = Step("flow", "child", root.pk, many=2)
    seen = look(step)
    assert (seen.ended, seen.status) == (False, "1 ended")
    assert sorted(seen.complaint().split(", ")) == ["1 done", "1 pending"]
    Job.objects.filter(pk=waiting.pk).delete()
    JobFactory(done=True, kind="child", parent_id=root.pk)
    assert (look(step).ended, look(step).status, look(step).complaint()) == (True, "done", "")


def test_what_has_not_run_is_taken_back() -> None:
    done, waiting, other = JobFactory(done=True), JobFactory(), JobFactory()
    children = [JobFactory(kind="child", parent_id=waiting.pk) for _ in range(3)]
    take_back([Step("a", "k", done.pk), Step("b", "k", waiting.pk), Step("b", "child", waiting.pk, many=3)])
    statuses = dict(Job.objects.values_list("pk", "status"))
    assert [statuses[job.pk] for job in (done, waiting, other)] == ["done", "cancelled", "pending"]
    assert {statuses[child.pk] for child in children} == {"cancelled"}
