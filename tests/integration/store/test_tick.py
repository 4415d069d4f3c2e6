"""tick: the nominal time, its job and the next time are one statement."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction

from pgjobs import store
from pgjobs.models import Job, Rerun, Schedule, Tick
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import claim, database_now
from tests.ticking import MINUTE, SECOND, due, fresh, jobs, overdue, schedule, tick, ticks

pytestmark = pytest.mark.django_db


def everything() -> list[Any]:
    return [list(model.objects.order_by("id").values()) for model in (Schedule, Tick, Job, Rerun)]


def test_a_tick_and_its_job_name_each_other() -> None:
    """F85"""
    one = schedule(queue="reports")
    nominal = overdue(one)
    [(scheduled_for, outcome, job_id)] = tick(due(one), nominal)
    [job] = jobs(one)
    assert (scheduled_for, outcome, job_id) == (nominal, "enqueued", job.pk)
    assert (job.kind, job.status, job.scheduled_for, job.dedupe_key) == ("write_note", "pending", nominal, None)
    [row] = Tick.objects.values("schedule_id", "scheduled_for", "job_id", "outcome")
    assert row == {"schedule_id": one.pk, "scheduled_for": nominal, "job_id": job.pk, "outcome": "enqueued"}
    after = fresh(one.pk)
    assert after.last_tick_at == nominal
    assert after.next_run_at > database_now()
    assert (after.errors, after.last_error, after.skipped, after.revision) == (0, "", 0, one.revision)


def test_a_nominal_time_is_fired_once_by_whoever_read_it() -> None:
    """F85: the second worker read the same row; it changes nothing."""
    one = schedule()
    nominal = overdue(one)
    row = due(one)
    assert tick(row, nominal)
    before = everything()
    assert tick(row, nominal) == []
    assert everything() == before


def test_a_job_that_is_finished_and_gone_does_not_free_its_time() -> None:
    """F86: neither the row of the job nor the tick's own is what keeps it from firing again."""
    one = schedule()
    nominal = overdue(one)
    tick(due(one), nominal)
    Job.objects.all().delete()
    overdue(one, at=nominal)  # a scheduler whose clock is behind
    assert tick(due(one), nominal) == []
    assert not Job.objects.exists()
    Tick.objects.all().delete()
    overdue(one, at=nominal)
    assert tick(due(one), nominal) == []
    assert not Job.objects.exists()
    assert fresh(one.pk).last_tick_at == nominal


def test_the_unique_key_is_the_last_line_of_defence() -> None:
    """F85"""
    one = schedule()
    nominal = overdue(one)
    tick(due(one), nominal)
    with pytest.raises(IntegrityError, match="pgjobs_tick_once"), transaction.atomic():
        Tick.objects.create(schedule_id=one.pk, scheduled_for=nominal)
    Schedule.objects.filter(pk=one.pk).update(last_tick_at=None, next_run_at=nominal)  # somebody meddles
    assert tick(due(one), nominal) == []
    assert Job.objects.count() == 1


@pytest.mark.parametrize(
    "edit",
    [{"cron": "5 * * * *", "every": None}, {"payload": {}}, {"enabled": False}, {"kind": "add"}, {"overlap": "skip"}],
)
def test_a_schedule_that_was_edited_meanwhile_is_not_fired(edit: dict[str, Any]) -> None:
    """F96: not with what was read before."""
    one = schedule()
    nominal = overdue(one)
    row = due(one)
    Schedule.objects.filter(pk=one.pk).update(**edit)
    before = everything()
    assert tick(row, nominal) == []
    assert everything() == before


def test_nothing_is_fired_before_its_time_by_the_databases_clock() -> None:
    one = schedule()
    nominal = overdue(one)
    row = due(one)
    early = database_now() + dt.timedelta(minutes=2)
    with pytest.raises(DatabaseError, match="in the future by the database's clock"), transaction.atomic():
        tick(row, early)
    overdue(one, at=early)
    before = everything()
    assert tick(row, early) == []
    assert nominal < early
    assert everything() == before


def test_the_next_time_comes_after_the_last() -> None:
    one = schedule()
    nominal = overdue(one)
    row = due(one)
    before = everything()
    with pytest.raises(DatabaseError, match="does not come after"), transaction.atomic():
        tick(row, nominal, following=nominal)
    assert everything() == before


def test_what_fails_inside_leaves_nothing() -> None:
    """The tick and its job commit together or not at all."""
    one = schedule()
    nominal = overdue(one)
    before = everything()
    with pytest.raises(IntegrityError), transaction.atomic():
        store.tick(
            connection,
            due(one),
            store.NewJob("write_note", "[]", "default", 0, 10, None),  # no object
            times=[nominal],
            missed=None,
            following=nominal + MINUTE,
        )
    assert everything() == before


def test_several_times_at_once_and_one_that_was_missed() -> None:
    one = schedule()
    nominal = overdue(one)
    times = [nominal - 2 * MINUTE, nominal - MINUTE, nominal]
    overdue(one, at=times[0])
    assert [outcome for _, outcome, _ in tick(due(one), *times, missed=times[0] - MINUTE)] == [
        "missed",
        *["enqueued"] * 3,
    ]
    assert ticks(one) == [(times[0] - MINUTE, "missed"), *[(time, "enqueued") for time in times]]
    assert [job.scheduled_for for job in jobs(one)] == times
    assert fresh(one.pk).last_tick_at == nominal


def test_a_row_that_somebody_holds_is_passed_over(hold_row: Hold) -> None:
    one = schedule()
    nominal = overdue(one)
    row = due(one)
    release = hold_row(one.pk, table="pgjobs_schedule")
    assert tick(row, nominal) == []
    assert not store.tick_failed(connection, row, "x", 1)
    release()
    assert tick(row, nominal)


@pytest.mark.parametrize("notify", [True, False])
def test_the_job_is_announced_unless_told_otherwise(heard: Any, notify: bool) -> None:
    one = schedule()
    nominal = overdue(one)
    tick(due(one), nominal, notify=notify)
    assert heard() == (["default"] if notify else [])


# Overlap -----------------------------------------------------------------------------------------------------------


def fire(one: Schedule, nominal: dt.datetime) -> str:
    """One tick; its outcome."""
    overdue(one, at=nominal)
    [(_, outcome, _)] = tick(due(one), nominal)
    return outcome


def start(one: Schedule) -> Any:
    """A worker takes its job."""
    [job] = claim(1)
    return job


def test_allow_enqueues_beside_what_runs() -> None:
    one = schedule(overlap="allow")
    first = overdue(one, 5 * MINUTE)
    assert [fire(one, first + n * MINUTE) for n in range(3)] == ["enqueued"] * 3
    assert fresh(one.pk).skipped == 0


def test_skip_leaves_out_what_comes_while_a_job_lives() -> None:
    """F98: a job that waits, runs, or waits for its next attempt; and it is counted."""
    one = schedule(overlap="skip")
    first = overdue(one, 9 * MINUTE)
    assert fire(one, first) == "enqueued"
    assert fire(one, first + MINUTE) == "skipped"
    job = start(one)
    assert fire(one, first + 2 * MINUTE) == "skipped"
    Job.objects.filter(pk=job.id).update(
        status="pending",
        lease=None,
        reserved_by=None,
        reserved_at=None,
        reserved_until=None,
        run_after=database_now() + MINUTE,
    )
    assert fire(one, first + 3 * MINUTE) == "skipped"
    assert fresh(one.pk).skipped == 3
    store.cancel(connection, [job.id])
    assert fire(one, first + 4 * MINUTE) == "enqueued"
    assert [outcome for _, outcome in ticks(one)] == ["enqueued", *["skipped"] * 3, "enqueued"]


def test_queue_one_lets_one_wait_behind_the_running_one() -> None:
    """F98: never two at once, never more than one waiting, and the one that waits keeps its nominal time."""
    one = schedule(overlap="queue_one")
    first = overdue(one, 9 * MINUTE)
    assert fire(one, first) == "enqueued"
    assert fire(one, first + MINUTE) == "skipped", "one waits already"
    job = start(one)
    assert fire(one, first + 2 * MINUTE) == "queued"
    assert fire(one, first + 3 * MINUTE) == "skipped"
    assert Job.objects.count() == 1
    assert claim(1) == [], "what waits does not run beside it"
    assert store.finish(connection, job.id, job.lease, None)
    [_, second] = jobs(one)
    assert (second.status, second.scheduled_for, second.schedule_id) == ("pending", first + 2 * MINUTE, one.pk)
    assert Tick.objects.get(scheduled_for=first + 2 * MINUTE).job_id == second.pk
    assert [outcome for _, outcome in ticks(one)] == ["enqueued", "skipped", "enqueued", "skipped"]
    assert fresh(one.pk).skipped == 2


def test_schedules_do_not_get_in_each_others_way() -> None:
    some = [schedule(overlap=overlap) for overlap in ("skip", "skip", "queue_one")]
    assert [fire(one, overdue(one)) for one in some] == ["enqueued"] * 3


def test_at_most_one_lives_when_the_caller_says_so() -> None:
    one = schedule(overlap="allow")
    first = overdue(one, 5 * MINUTE)
    outcomes = []
    for n in range(2):
        overdue(one, at=first + n * MINUTE)
        outcomes += [outcome for _, outcome, _ in tick(due(one), first + n * MINUTE, once=True)]
    assert outcomes == ["enqueued", "skipped"]


# The verbs beside it ------------------------------------------------------------------------------------------------


def test_due_are_those_whose_time_has_come_or_is_not_known() -> None:
    planned, unplanned, late, paused, retired, waiting = (schedule() for _ in range(6))
    Schedule.objects.filter(pk=planned.pk).update(next_run_at=database_now() + MINUTE)
    overdue(late)
    for one in (paused, retired, waiting):
        overdue(one)
    Schedule.objects.filter(pk=paused.pk).update(enabled=False)
    Schedule.objects.filter(pk=retired.pk).update(retired_at=database_now())
    Schedule.objects.filter(pk=waiting.pk).update(retry_at=database_now() + MINUTE)
    assert {row.id for row in store.due_ticks(connection)} == {unplanned.pk, late.pk}
    assert [row.id for row in store.due_ticks(connection, limit=1)] == [late.pk]


def test_how_long_until_the_next_look() -> None:
    assert store.next_tick(connection) is None
    one = schedule(enabled=False)
    assert store.next_tick(connection) is None
    Schedule.objects.filter(pk=one.pk).update(enabled=True)
    assert store.next_tick(connection) == 0
    Schedule.objects.filter(pk=one.pk).update(next_run_at=database_now() + 30 * SECOND)
    assert 28 < (store.next_tick(connection) or 0) <= 30
    Schedule.objects.filter(pk=one.pk).update(retry_at=database_now() + MINUTE)
    assert 58 < (store.next_tick(connection) or 0) <= 60
    overdue(schedule())
    assert store.next_tick(connection) == 0


def test_a_plan_is_made_once_and_of_the_row_that_was_read() -> None:
    """F95: the zone of the first worker is stored, and is the schedule's from then on."""
    one = schedule(cron="0 3 * * *", timezone="")
    row = due(one)
    at = database_now().astimezone(dt.UTC) + MINUTE
    assert store.plan_tick(connection, row, at, "Asia/Tokyo")
    assert not store.plan_tick(connection, row, at + MINUTE, "UTC")
    after = fresh(one.pk)
    assert (after.next_run_at, after.timezone, after.revision) == (at, "Asia/Tokyo", one.revision)
    other = schedule()
    row = due(other)
    Schedule.objects.filter(pk=other.pk).update(every=2 * MINUTE)
    assert not store.plan_tick(connection, row, at, "UTC")
    assert fresh(other.pk).next_run_at is None


def test_an_error_is_counted_once_whoever_met_it() -> None:
    """F101"""
    one = schedule()
    nominal = overdue(one)
    row = due(one)
    assert store.tick_failed(connection, row, "boom", 60)
    assert not store.tick_failed(connection, row, "boom", 60)
    after = fresh(one.pk)
    assert (after.errors, after.last_error, after.next_run_at) == (1, "boom", nominal)
    assert store.due_ticks(connection) == []
    assert 58 < (store.next_tick(connection) or 0) <= 60


def test_old_ticks_go_when_their_job_is_gone() -> None:
    """F86: a tick outlives its job."""
    one = schedule()
    old = database_now() - dt.timedelta(days=30)
    kept = JobFactory(done=True)
    for n, job_id in enumerate([kept.pk, 10**12, None]):
        Tick.objects.create(schedule_id=one.pk, scheduled_for=old + n * MINUTE, created_at=old, job_id=job_id)
    Tick.objects.create(schedule_id=one.pk, scheduled_for=database_now())
    assert store.prune_ticks(connection, 7 * 86_400, batch=1) == 1
    assert store.prune_ticks(connection, 7 * 86_400) == 1
    assert store.prune_ticks(connection, 7 * 86_400) == 0
    assert Tick.objects.filter(job_id=kept.pk).exists()
    assert Tick.objects.count() == 2
