# ruff: noqa: A002, A006 - the names of the parameters are those of the columns
"""What all writes by a holder have in common: the lease decides, and nothing waits for somebody's open transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from pgjobs import store
from pgjobs.models import Job
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import changes, claim, columns, held, lapse, nothing_changes

Verb = Callable[[int, int], str]


def finish_many(id: int, lease: int) -> str:
    return store.finish_many(connection, [id], [lease], {id: '"result"'}, {}).get(id, "done")


def heartbeat(id: int, lease: int) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT verdict FROM pgjobs_heartbeat(%s, %s, interval '1 hour')", [[id], [lease]])
        return str(cursor.fetchone()[0])


def release(started: bool) -> Verb:
    return lambda id, lease: store.release(connection, [id], [lease], started=started, reason="stopping")[id]


HOLDERS: dict[str, tuple[Verb, str]] = {
    "finish_many": (finish_many, "done"),
    "retry": (lambda id, lease: store.retry(connection, id, lease, error="boom"), "pending"),
    "bury": (lambda id, lease: store.bury(connection, id, lease, error="boom"), "dead"),
    "fail": (lambda id, lease: store.fail(connection, id, lease, error="boom"), "failed"),
    "snooze": (lambda id, lease: store.snooze(connection, id, lease, until=60.0), "pending"),
    "cancel_held": (lambda id, lease: store.cancel_held(connection, id, lease, reason="enough"), "cancelled"),
    "release (started)": (release(True), "pending"),
    "release (not started)": (release(False), "pending"),
    "progress": (lambda id, lease: store.progress(connection, id, lease, '{"done": 1}'), "held"),
    "heartbeat": (heartbeat, "held"),
}
every_holder = pytest.mark.parametrize("name", HOLDERS)


@every_holder
@pytest.mark.django_db
def test_under_the_lease_of_the_claim_it_works(name: str) -> None:
    verb, outcome = HOLDERS[name]
    job = held()
    assert verb(job.id, job.lease) == outcome


@every_holder
@pytest.mark.django_db
def test_with_another_lease_it_is_lost_and_nothing_changes(name: str) -> None:
    verb, _ = HOLDERS[name]
    job = held()
    with nothing_changes():
        assert verb(job.id, job.lease ^ 1) == "lost"


@every_holder
@pytest.mark.django_db
def test_after_reap_and_a_new_claim_by_the_same_worker_it_is_lost(name: str) -> None:
    """A stable name is no fence: the lease is drawn anew by each claim."""
    verb, outcome = HOLDERS[name]
    first = held()
    lapse(first.id)
    assert len(store.reap(connection)) == 1
    [second] = claim()
    assert second.id == first.id
    assert columns(second.id)["worker"] == "w-1"
    with nothing_changes():
        assert verb(first.id, first.lease) == "lost"
    assert verb(second.id, second.lease) == outcome


@every_holder
@pytest.mark.django_db
@pytest.mark.parametrize("state", ["pending", "done", "dead", "failed", "cancelled"])
def test_when_the_job_is_not_reserved_it_is_lost(name: str, state: str) -> None:
    verb, _ = HOLDERS[name]
    job = JobFactory() if state == "pending" else JobFactory(**{state: True})
    with nothing_changes():
        assert verb(job.pk, 77) == "lost"


@every_holder
@pytest.mark.django_db
def test_when_the_row_is_gone_it_is_lost(name: str) -> None:
    verb, _ = HOLDERS[name]
    job = held()
    Job.objects.filter(pk=job.id).delete()
    with nothing_changes():
        assert verb(job.id, job.lease) == "lost"


@every_holder
@pytest.mark.parametrize("how", ["FOR UPDATE", "FOR NO KEY UPDATE", "FOR SHARE"])
def test_it_does_not_wait_for_a_row_that_somebody_holds(name: str, how: str, hold_row: Hold) -> None:
    verb, outcome = HOLDERS[name]
    job = held()
    let_go = hold_row(job.id, how)
    with nothing_changes():
        assert verb(job.id, job.lease) == "busy"
    let_go()
    assert verb(job.id, job.lease) == outcome


@every_holder
def test_a_foreign_key_check_of_others_is_no_obstacle(name: str, hold_row: Hold) -> None:
    verb, outcome = HOLDERS[name]
    job = held()
    hold_row(job.id, "FOR KEY SHARE")
    assert verb(job.id, job.lease) == outcome


@every_holder
def test_a_row_that_is_held_under_another_lease_is_lost_not_busy(name: str, hold_row: Hold) -> None:
    verb, _ = HOLDERS[name]
    job = held()
    hold_row(job.id)
    assert verb(job.id, job.lease ^ 1) == "lost"


CANCELLED = {"retry", "bury", "fail", "snooze", "release (started)", "release (not started)"}


@pytest.mark.parametrize("name", sorted(CANCELLED))
@pytest.mark.django_db
def test_a_job_that_somebody_asked_to_cancel_ends_as_cancelled(name: str) -> None:
    verb, _ = HOLDERS[name]
    job = held()
    assert store.cancel(connection, [job.id]) == {job.id: "requested"}
    with changes(job.id) as changed:
        assert verb(job.id, job.lease) == "cancelled"
    assert changed["status"] == "cancelled"
    assert changed["finished_at"] is not None
    assert "run_after" not in changed
    assert "cancel_requested_at" not in changed  # who asked, and when, stays to be read


@pytest.mark.django_db
def test_a_normal_return_of_a_job_that_somebody_asked_to_cancel_is_done() -> None:
    job = held()
    store.cancel(connection, [job.id])
    assert finish_many(job.id, job.lease) == "done"
    assert columns(job.id)["status"] == "done"


@pytest.mark.django_db
@pytest.mark.parametrize("verb", ["heartbeat", "finish_many", "release"])
def test_in_a_batch_each_job_has_its_own_lease(verb: str) -> None:
    """Leases of the same batch do not stand in for each other, and one stale pair beside the right one stays stale."""
    first, second = held(), held()
    ids = [first.id, second.id, first.id]
    crossed = [second.lease, first.lease, second.lease]
    with connection.cursor() as cursor:
        call: dict[str, Any] = {
            "heartbeat": "SELECT id, verdict FROM pgjobs_heartbeat(%s, %s, interval '1 hour')",
            "finish_many": "SELECT id, outcome FROM pgjobs_finish_many(%s, %s)",
            "release": "SELECT id, outcome FROM pgjobs_release(%s, %s, false)",
        }
        with nothing_changes():
            cursor.execute(call[verb], [ids, crossed])
            assert sorted(cursor.fetchall()) == sorted((id_, "lost") for id_ in ids)
        cursor.execute(call[verb], [[first.id, first.id], [first.lease, second.lease]])
        answers = cursor.fetchall()
    assert (first.id, "lost") in answers
    assert len(answers) == (1 if verb == "finish_many" else 2)
