"""finish, for many: reserved → done."""

from __future__ import annotations

import pytest
from django.db import connection

from pgjobs import store
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import NO_LEASE, changes, claim, columns, held, history

pytestmark = pytest.mark.django_db


def test_a_finished_job_has_its_result_and_no_trace_of_the_reservation() -> None:
    job = held(last_error="boom", error_class="ValueError", lost=2, refunds=3, snoozes=4)
    with changes(job.id) as changed:
        assert store.finish_many(connection, [job.id], [job.lease], {job.id: '{"a":1}'}, {}) == {}
    assert changed.pop("finished_at") is not None
    assert changed == NO_LEASE | {
        "status": "done",
        "result": {"a": 1},
        "last_error": None,
        "error_class": None,
        "lost": 0,
    }
    assert history(job.id) == []


def test_each_gets_its_own_result_and_note() -> None:
    first, second, third = held(), held(), held()
    jobs = [third, first, second]
    answers = store.finish_many(
        connection, [j.id for j in jobs], [j.lease for j in jobs], {first.id: "false"}, {second.id: "too large"}
    )
    assert answers == {}
    assert [columns(j.id)["result"] for j in (first, second, third)] == [False, None, None]
    assert [columns(j.id)["last_error"] for j in (first, second, third)] == [None, "too large", None]


def test_none() -> None:
    assert store.finish_many(connection, [], [], {}, {}) == {}


def test_those_that_are_lost_or_busy_do_not_stop_the_rest(hold_row: Hold) -> None:
    JobFactory.create_batch(5)
    jobs = claim()
    hold_row(jobs[1].id)
    leases = [j.lease for j in jobs]
    leases[3] ^= 1
    answers = store.finish_many(connection, [j.id for j in jobs], leases, {}, {})
    assert answers == {jobs[1].id: "busy", jobs[3].id: "lost"}
    assert [columns(j.id)["status"] for j in jobs] == ["done", "reserved", "done", "reserved", "done"]
