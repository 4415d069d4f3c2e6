"""requeue: an operator's done, failed, dead, cancelled → pending now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Job
from tests.factories import FINAL_TRAITS, JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import changes, claim, columns, database_now, history, nothing_changes

pytestmark = pytest.mark.django_db

CLEARED = {"result", "progress", "last_error", "error_class", "finished_at", "cancel_requested_at"}


@pytest.mark.parametrize("trait", FINAL_TRAITS)
def test_an_ended_job_runs_again_and_keeps_its_history(trait: str) -> None:
    """F142"""
    job = JobFactory(
        **{trait: True}, refunds=5, lost=2, snoozes=3, max_attempts=2, cancel_requested_at=timezone.now(),
        progress={"done": 1},
    )  # fmt: skip
    before, told = columns(job.pk), history(job.pk)
    now = database_now()
    with changes(job.pk) as changed:
        assert store.requeue(connection, [job.pk]) == {job.pk: ("requeued", None)}
    assert now <= changed.pop("run_after") <= database_now()
    max_attempts = {"max_attempts": 3} if trait == "dead" else {}
    assert changed == {name: None for name in CLEARED if before[name] is not None} | max_attempts | {
        "status": "pending", "refunds": 0, "lost": 0,
    }  # fmt: skip
    assert history(job.pk) == told
    assert claim()[0].attempt == before["attempts"] + 1


def test_there_is_one_more_attempt_at_least() -> None:
    job = JobFactory(dead=True, attempts=7)
    store.requeue(connection, [job.pk])
    assert (columns(job.pk)["attempts"], columns(job.pk)["max_attempts"]) == (7, 8)
    early = JobFactory(failed=True, max_attempts=10)
    store.requeue(connection, [early.pk])
    assert columns(early.pk)["max_attempts"] == 10


def test_it_does_not_expire_again_at_once() -> None:
    gone, later = (
        JobFactory(lapsed_unused=True),
        JobFactory(dead=True, expires_at=timezone.now() + dt.timedelta(hours=1)),
    )
    store.requeue(connection, [gone.pk, later.pk])
    assert columns(gone.pk)["expires_at"] is None
    assert columns(later.pk)["expires_at"] == later.expires_at
    assert len(claim()) == 2


@pytest.mark.parametrize("trait", ["scheduled", "retrying", "reserved", "lapsed", "cancel_requested"])
def test_a_live_job_is_not_final(trait: str) -> None:
    job = JobFactory(**{trait: True})
    with nothing_changes():
        assert store.requeue(connection, [job.pk, 10**12]) == {job.pk: ("not_final", None), 10**12: ("missing", None)}


@pytest.mark.parametrize("trait", [None, "scheduled", "reserved"])
def test_a_key_that_a_live_job_holds_is_told_and_stops_nobody_else(trait: str | None) -> None:
    """F28, F75"""
    live = JobFactory(**{trait: True} if trait else {}, dedupe_key="k")
    dead, twin, other, plain = (
        JobFactory(dead=True, dedupe_key="k"),
        JobFactory(dead=True, dedupe_key="k"),
        JobFactory(dead=True, dedupe_key="other"),
        JobFactory(dead=True),
    )
    assert store.requeue(connection, [plain.pk, other.pk, twin.pk, dead.pk]) == {
        dead.pk: ("key_in_use", live.pk),
        twin.pk: ("key_in_use", live.pk),
        other.pk: ("requeued", None),
        plain.pk: ("requeued", None),
    }
    assert Job.objects.filter(status="dead").count() == 2


def test_of_two_dead_jobs_with_a_key_the_first_gets_it() -> None:
    first, second = JobFactory(dead=True, dedupe_key="k"), JobFactory(done=True, dedupe_key="k")
    assert store.requeue(connection, [second.pk, first.pk]) == {
        first.pk: ("requeued", None),
        second.pk: ("key_in_use", first.pk),
    }


def test_a_second_click_changes_nothing() -> None:
    """F142"""
    job = JobFactory(dead=True)
    store.requeue(connection, [job.pk])
    with nothing_changes():
        assert store.requeue(connection, [job.pk]) == {job.pk: ("not_final", None)}


def test_rows_that_others_hold_are_told_as_busy(hold_row: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.store.operating.PATIENCE", 0)
    held_row, free = JobFactory(dead=True), JobFactory(dead=True)
    hold_row(held_row.pk)
    assert store.requeue(connection, [held_row.pk, free.pk]) == {
        held_row.pk: ("busy", None),
        free.pk: ("requeued", None),
    }


def test_workers_are_told_once_a_queue(heard: Callable[[], list[str]]) -> None:
    """F76"""
    jobs = [JobFactory(dead=True, queue=queue) for queue in "aab"] + [JobFactory(queue="c")]
    heard()
    store.requeue(connection, [job.pk for job in jobs])
    assert sorted(heard()) == ["a", "b"]
