"""reschedule: pending → pending at another time, priority or queue."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from pgjobs import store
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import changes, nothing_changes

pytestmark = pytest.mark.django_db

LATER = timezone.now() + dt.timedelta(days=1)


@pytest.mark.parametrize(
    "given",
    [{"run_after": LATER}, {"priority": -7}, {"queue": "q"}, {"run_after": LATER, "priority": 100, "queue": "q"}],
)
@pytest.mark.parametrize("trait", [None, "scheduled", "retrying", "snoozed"])
def test_what_is_given_changes_and_nothing_else(trait: str | None, given: dict[str, Any]) -> None:
    job = JobFactory(**{trait: True} if trait else {}, dedupe_key="k")
    with changes(job.pk) as changed:
        assert store.reschedule(connection, [job.pk], **given) == {job.pk: "rescheduled"}
    assert changed == given


@pytest.mark.parametrize("trait", ["reserved", "lapsed", "done", "failed", "dead", "cancelled"])
def test_only_pending_jobs(trait: str) -> None:
    job = JobFactory(**{trait: True})
    with nothing_changes():
        answers = store.reschedule(connection, [job.pk, 10**12], priority=1)
    assert answers == {job.pk: "not_pending", 10**12: "missing"}


@pytest.mark.parametrize("given", [{"priority": 101}, {"queue": ""}])
def test_what_the_table_cannot_hold_is_refused(given: dict[str, Any]) -> None:
    job = JobFactory()
    with pytest.raises(IntegrityError), transaction.atomic():
        store.reschedule(connection, [job.pk], **given)


def test_rows_that_others_hold_are_told_as_busy(hold_row: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.store.operating.PATIENCE", 0)
    job = JobFactory()
    hold_row(job.pk, "FOR NO KEY UPDATE")
    assert store.reschedule(connection, [job.pk], priority=1) == {job.pk: "busy"}


def test_workers_are_told(heard: Callable[[], list[str]]) -> None:
    jobs = [JobFactory(scheduled=True, queue=queue) for queue in "ab"] + [JobFactory(done=True, queue="c")]
    heard()
    store.reschedule(connection, [job.pk for job in jobs], run_after=timezone.now())
    assert sorted(heard()) == ["a", "b"]
    store.reschedule(connection, [jobs[0].pk], queue="d")
    assert heard() == ["d"]
