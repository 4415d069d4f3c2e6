"""The tools of the tests: factories make coherent rows, scripts do what they say."""

from __future__ import annotations

import pytest

from pgjobs.models import Attempt, Job
from tests.factories import TRAITS, JobFactory
from tests.testapp import audit, script
from tests.testapp.jobs import scripted
from tests.testapp.models import Note

STATUS = {
    "reserved": "reserved", "lapsed": "reserved", "cancel_requested": "reserved", "done": "done", "failed": "failed",
    "dead": "dead", "cancelled": "cancelled", "lapsed_unused": "cancelled",
}  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("trait", [None, *TRAITS])
def test_each_trait_makes_a_coherent_row(trait: str | None) -> None:
    job = JobFactory(**{trait: True} if trait else {})
    job.refresh_from_db()
    job.full_clean()
    assert job.status == STATUS.get(trait or "", "pending")
    assert len(job.worker_ids) == job.attempts
    bad = job.attempts - (1 if job.status in ("done", "reserved") else 0)
    assert Attempt.objects.filter(job=job).count() == bad
    if job.finished_at is None and job.status == "reserved":
        assert job.reserved_by == job.worker == "w-1"


@pytest.mark.django_db
def test_a_trait_with_more_attempts_has_history_for_each() -> None:
    job = JobFactory(dead=True, attempts=3)
    assert job.max_attempts == 3
    assert list(job.history.order_by("id").values_list("attempt", "outcome")) == [
        (1, "error"),
        (2, "error"),
        (3, "error"),
    ]
    assert list(JobFactory(dead=True, history=False).history.all()) == []


@pytest.mark.django_db(transaction=True)
def test_a_script_does_its_steps_and_its_audit_trail_survives_a_rollback() -> None:
    assert scripted(None, steps=[["note", "hello"], ["audit", "between"], ["return", {"a": 1}]]) == {"a": 1}
    with pytest.raises(ValueError, match="boom"):
        scripted(None, steps=[["raise", "ValueError", "boom"]])
    assert audit.events() == ["start", "between", "end", "start", "end"]
    assert Note.objects.get().text == "hello"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", sorted(set(script.ODD_ERRORS) - {"large", "group"}))
def test_odd_errors_are_raised_and_audited(name: str) -> None:
    with pytest.raises(BaseException):  # noqa: B017, PT011 - any
        scripted(None, steps=[["raise_odd", name]])
    assert audit.events() == ["start", "end"]


@pytest.mark.django_db
def test_jobs_are_enqueued_with_scripts() -> None:
    handle = scripted.enqueue(steps=[["sleep", 0.1]], then=[[["return", 1]]])
    assert Job.objects.get(pk=handle.id).payload == {"steps": [["sleep", 0.1]], "then": [[["return", 1]]]}
