"""finish: the public function, for workers in any language."""

from __future__ import annotations

import datetime as dt
import threading
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from pgjobs import store
from tests.conftest import Connect
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import NO_LEASE, changes, columns, database_now, held, history, nothing_changes
from tests.waiting import wait_until_blocked

pytestmark = pytest.mark.django_db


def finish(id_: int, lease: int, *more: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT pgjobs_finish({', '.join(['%s', '%s', *more])})", [id_, lease])
        return cursor.fetchone()[0]


@pytest.mark.parametrize(
    ("given", "stored"),
    [("NULL", None), ("'0'", 0), ("'false'", False), ("'\"\"'", ""), ("'[]'", []), ("'{\"a\": [1]}'", {"a": [1]})],
)
def test_success_is_done_whatever_the_result(given: str, stored: object) -> None:
    """F108: a falsy result is a success."""
    job = held()
    with changes(job.id) as changed:
        assert finish(job.id, job.lease, "p_success => true", f"p_result => {given}") == "done"
    assert changed.pop("finished_at") is not None
    assert changed == NO_LEASE | {"status": "done"} | ({} if stored is None else {"result": stored})
    assert history(job.id) == []


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_max_attempts_is_the_number_of_runs(max_attempts: int) -> None:
    """F108"""
    job = JobFactory(max_attempts=max_attempts)
    statuses = []
    while columns(job.pk)["status"] == "pending":
        with connection.cursor() as cursor:
            cursor.execute("UPDATE pgjobs_job SET run_after = now() WHERE id = %s", [job.pk])
            cursor.execute("SELECT lease FROM pgjobs_claim(1, 'w')")
            [lease] = cursor.fetchone()
        statuses.append(finish(job.pk, lease, "false", "'boom'"))
    assert statuses == ["pending"] * (max_attempts - 1) + ["dead"]
    assert [row["attempt"] for row in history(job.pk)] == list(range(1, max_attempts + 1))


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(0, 10), (2, 40), (10, 10240), (11, 20480), (12, 21600), (500, 21600)]
)
def test_a_failure_waits_its_backoff_from_now_not_from_the_start_of_the_attempt(attempts: int, seconds: int) -> None:
    """F115"""
    job = held(attempts=attempts, max_attempts=1000, history=False)
    before = database_now()
    with changes(job.id) as changed:
        assert finish(job.id, job.lease, "false", "'boom'") == "pending"
    waits = changed["run_after"] - before
    assert dt.timedelta(seconds=seconds) <= waits <= dt.timedelta(seconds=seconds + 2)


def test_a_lost_lease_is_null_and_changes_nothing() -> None:
    job = held()
    with nothing_changes():
        for success in ("true", "false"):
            assert finish(job.id, job.lease ^ 1, success, "'boom'") is None
            assert finish(10**12, job.lease, success, "'boom'") is None


def test_a_failure_meets_a_request_to_cancel() -> None:
    job = held()
    store.cancel(connection, [job.id])
    assert finish(job.id, job.lease, "false", "'boom'") == "cancelled"


def test_a_success_meets_a_request_to_cancel() -> None:
    job = held()
    store.cancel(connection, [job.id])
    assert finish(job.id, job.lease, "true") == "done"


def test_it_has_to_be_told_whether_it_went_well() -> None:
    job = held()
    with pytest.raises(DatabaseError, match="p_success has to be true or false"), transaction.atomic():
        finish(job.id, job.lease, "NULL")


def test_a_row_that_was_reserved_by_hand_can_be_finished_and_failed() -> None:
    """Whatever the row lacks: a failure can always be recorded."""
    for success, status in (("true", "done"), ("false", "pending")):
        job = JobFactory()
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE pgjobs_job SET status = 'reserved', lease = 5, reserved_by = 'go', reserved_until = now()"
                " WHERE id = %s",
                [job.pk],
            )
        assert finish(job.pk, 5, success, "NULL") == status


def test_unlike_the_batch_forms_it_waits_for_a_row_that_somebody_holds(hold_row: Hold, connect: Connect) -> None:
    job = held()
    let_go = hold_row(job.id)
    other, observer = connect(), connect()
    answers: list[Any] = []
    thread = threading.Thread(
        target=lambda: answers.append(
            other.execute("SELECT pgjobs_finish(%s, %s, true)", [job.id, job.lease]).fetchone()
        )
    )
    thread.start()
    wait_until_blocked(observer, other.info.backend_pid)
    let_go()
    thread.join(20)
    assert answers == [("done",)]
