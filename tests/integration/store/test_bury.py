"""bury: reserved → dead, because no attempt is left; by an operator: pending → dead."""

from __future__ import annotations

import pytest
from django.db import connection

from pgjobs import store
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import NO_LEASE, changes, columns, held, history, nothing_changes

pytestmark = pytest.mark.django_db


def test_a_dead_job_says_why() -> None:
    job = held(lost=1, dedupe_key="k")
    with changes(job.id) as changed:
        answer = store.bury(
            connection, job.id, job.lease, error="boom", error_class="x.Y", traceback="T", outcome="timeout", log="said"
        )
    assert answer == "dead"
    finished_at = changed.pop("finished_at")
    assert changed == NO_LEASE | {"status": "dead", "last_error": "boom", "error_class": "x.Y", "lost": 0}
    [row] = history(job.id)
    assert (row["finished_at"], row["outcome"], row["error"], row["log"]) == (finished_at, "timeout", "boom", "said")
    assert store.enqueue  # the key is free: see test_enqueue


@pytest.mark.parametrize(("by", "text"), [("", "buried"), ("ann", "buried by ann")])
@pytest.mark.parametrize("trait", [None, "scheduled", "retrying", "snoozed"])
def test_an_operator_buries_pending_jobs(trait: str | None, by: str, text: str) -> None:
    job = JobFactory(**{trait: True} if trait else {})
    with changes(job.pk) as changed:
        assert store.bury_pending(connection, [job.pk], by=by) == {job.pk: "buried"}
    assert changed.pop("finished_at") is not None
    was = {"error_class": None} if trait == "retrying" else {}
    assert changed == {"status": "dead", "last_error": f"boom\n{text}" if trait == "retrying" else text} | was


@pytest.mark.parametrize("trait", ["reserved", "lapsed", "done", "failed", "dead", "cancelled"])
def test_no_other_job(trait: str) -> None:
    job = JobFactory(**{trait: True})
    with nothing_changes():
        assert store.bury_pending(connection, [job.pk, 10**12]) == {job.pk: "not_pending", 10**12: "missing"}


def test_rows_that_others_hold_are_told_as_busy(hold_row: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.store.operating.PATIENCE", 0)
    held_row, free = JobFactory(), JobFactory()
    hold_row(held_row.pk)
    assert store.bury_pending(connection, [held_row.pk, free.pk]) == {held_row.pk: "busy", free.pk: "buried"}
    assert columns(held_row.pk)["status"] == "pending"
