"""What a worker does with schedules that are due, each policy end to end against the database."""

from __future__ import annotations

import datetime as dt
import io
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import InternalError, connection
from django.test import Client, override_settings

from pgjobs import job, store
from pgjobs.api.context import set_context_hooks
from pgjobs.api.enqueueing import Enqueued
from pgjobs.api.registry import registry
from pgjobs.exceptions import EnqueueError
from pgjobs.models import Job, Schedule, Tick
from pgjobs.models.job import LAST
from pgjobs.schedules import payloads as payloads_module
from pgjobs.schedules import run_now
from pgjobs.schedules.payloads import Payloads
from tests.rows import database_now
from tests.ticking import MINUTE, SECOND, fresh, jobs, look, overdue, retried, schedule, ticks
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def handler() -> Iterator[Callable[..., Any]]:
    """Registers a handler for the test."""
    before = dict(registry._handlers)
    yield lambda **options: job(**options)
    registry._handlers = before


def make(handler: Any, payload: Any, **fields: Any) -> Schedule:
    """A schedule whose payload code makes."""

    @handler(kind="made", every=60, schedule_payload=payload, schedule_name="made")
    def made(**anything: Any) -> None: ...

    return schedule(name="made", kind="made", payload={}, payload_from="somewhere", source="code", **fields)


# New, changed, late ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", [{"cron": "* * * * *"}, {"every": SECOND}, {"cron": "0 3 * * 1", "timezone": "Asia/Tokyo"}]
)
def test_a_new_schedule_starts_with_its_next_tick(rule: dict[str, Any]) -> None:
    """F96"""
    one = schedule(**rule)
    before = database_now()
    assert look() == 1
    assert fresh(one.pk).next_run_at > before
    assert not Job.objects.exists()


def test_a_tick_is_the_handlers_job_with_its_nominal_time() -> None:
    one = schedule(kind="plus", payload={"a": 1})  # an alias
    nominal = overdue(one)
    told: list[Enqueued] = []
    assert look(enqueued=told.append) == 1
    [made] = jobs(one)
    assert (made.kind, made.queue, made.priority, made.max_attempts) == ("add", "sums", 7, 3)
    assert (made.timeout, made.payload, made.scheduled_for) == (dt.timedelta(seconds=45), {"a": 1}, nominal)
    assert [(each.id, each.created) for each in told] == [(made.pk, True)]
    assert look() == 0


def test_the_rows_queue_comes_before_the_handlers() -> None:
    one = schedule(kind="add", payload={"a": 1}, queue="reports")
    overdue(one)
    look()
    assert jobs(one)[0].queue == "reports"


@pytest.mark.parametrize(("misfire", "count"), [("once", 1), ("skip", 0), ("all", 24)])
def test_two_hours_without_a_worker(misfire: str, count: int) -> None:
    """F87"""
    one = schedule(cron="*/5 * * * *", misfire=misfire, max_lateness=None if misfire != "skip" else MINUTE / 60)
    now = database_now().astimezone(dt.UTC)
    last = now.replace(minute=now.minute // 5 * 5, second=0, microsecond=0)
    if now - last < 2 * SECOND:
        last -= 5 * MINUTE
    overdue(one, at=last - 23 * 5 * MINUTE)
    look()
    assert [each.scheduled_for for each in jobs(one)] == [last - n * 5 * MINUTE for n in reversed(range(count))]
    after = fresh(one.pk)
    assert after.next_run_at == last + 5 * MINUTE
    assert ticks(one)[-1] == (last, "missed" if misfire == "skip" else "enqueued")
    assert look() == 0


def test_a_month_without_a_worker_is_one_job() -> None:
    """F88"""
    one = schedule(cron="* * * * *")
    overdue(one, 30 * 1440 * MINUTE)
    look()
    assert len(jobs(one)) == 1


def test_a_clock_that_goes_back_fires_nothing_again() -> None:
    """F86: last_tick_at only moves forward, whatever somebody or some clock says."""
    one = schedule(every=SECOND)
    ahead = database_now().astimezone(dt.UTC).replace(microsecond=0) + 30 * SECOND
    Schedule.objects.filter(pk=one.pk).update(last_tick_at=ahead)
    look()
    assert fresh(one.pk).next_run_at == ahead + SECOND
    overdue(one, at=ahead - 40 * SECOND)
    look()
    assert fresh(one.pk).next_run_at == ahead + SECOND
    assert fresh(one.pk).last_tick_at == ahead
    assert not Job.objects.exists()


# One bad schedule never stops another ---------------------------------------------------------------------------------


def test_a_schedule_that_fired_in_a_wrong_future_starts_from_now_as_the_page_says() -> None:
    """F86: the server's clock was years ahead for a moment. The statement is that of docs/explanation/schedules.md."""
    one = schedule(timezone="UTC")
    ahead = database_now() + dt.timedelta(days=800)
    Schedule.objects.update(next_run_at=ahead, last_tick_at=ahead)
    Schedule.objects.update(enabled=False)
    Schedule.objects.update(enabled=True)
    look()
    assert fresh(one.pk).next_run_at > ahead
    page = (Path(__file__).parents[3] / "docs/explanation/schedules.md").read_text()
    [statement] = re.findall(r"^UPDATE pgjobs_schedule SET last_tick_at.*;", page, re.MULTILINE)
    with connection.cursor() as cursor:
        cursor.execute(statement)
    look()
    nominal = fresh(one.pk).next_run_at
    assert nominal - database_now() <= MINUTE
    overdue(one)
    assert look() == 1
    assert len(jobs(one)) == 1


def test_three_schedules_of_which_two_are_broken() -> None:
    """F101, F97: garbage put in by SQL; a kind that nobody has; and a good one."""
    garbage, stranger, good = schedule(cron="not cron"), schedule(kind="nobody has it", payload={}), schedule()
    for each in (stranger, good):
        overdue(each)
    Schedule.objects.filter(pk=stranger.pk).update(next_run_at=database_now() - 10 * SECOND)
    look()
    assert len(jobs(good)) == 1
    assert "not cron" in fresh(garbage.pk).last_error
    assert fresh(garbage.pk).errors == 1
    assert "no handler of kind 'nobody has it'" in fresh(stranger.pk).last_error
    overdue(good, at=database_now() + SECOND / 1000)
    wait_until(lambda: look() == 1)
    assert len(jobs(good)) == 2
    assert fresh(garbage.pk).errors == 1, "it is left alone for a while"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cron": "61 * * * *"}, "minute '61'"),
        ({"cron": "0 0 31 2 *"}, "can never match"),
        ({"timezone": "Mars/Olympus", "cron": "0 0 * * *"}, "Mars/Olympus"),
        ({"kind": "add", "payload": {"b": 1}}, "needs the argument 'a'"),
        ({"payload": {"texd": "x"}}, "did you mean 'text'"),
    ],
)
def test_an_error_is_written_on_its_schedule_and_goes_away_when_mended(fields: dict[str, Any], said: str) -> None:
    """F101: it backs off, and is never removed; its tick is not lost."""
    one = schedule(**fields)
    nominal = overdue(one)
    pauses = []
    for n in range(1, 4):
        look()
        after = fresh(one.pk)
        assert said in after.last_error
        assert after.errors == n
        pauses.append(round((after.retry_at - database_now()).total_seconds()))
        assert look() == 0
        retried(one)
    assert pauses == [5, 10, 20]
    assert fresh(one.pk).next_run_at == nominal
    Schedule.objects.filter(pk=one.pk).update(
        payload={"text": "x"}, kind="write_note", cron="* * * * *", every=None, timezone="UTC"
    )
    look()  # a new rule starts from now; a new payload has its tick
    wait_until(lambda: not look())
    after = fresh(one.pk)
    assert (after.errors, after.last_error) == (0, "")
    assert after.next_run_at > nominal


UNREADABLE = {
    "digits": f'{{"a": {"9" * 5000}}}',
    "exponent": '{"a": 1e5000}',
    "depth": f'{{"a": {"[" * 1500}{"]" * 1500}}}',
}
"""What PostgreSQL's jsonb holds and Python's json refuses (the depth: before Python 3.13)."""
if sys.version_info >= (3, 13):
    del UNREADABLE["depth"]


@pytest.mark.parametrize("payload", UNREADABLE.values(), ids=UNREADABLE)
def test_a_payload_that_python_cannot_read_spoils_no_other_schedule(payload: str, admin_client: Client) -> None:
    """F101: put in by SQL. The worker goes on, and so do the lists for people."""
    bad, good = schedule(name="bad"), schedule(name="good")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pgjobs_schedule SET payload = %s WHERE name = 'bad'", [payload])
    for one in (bad, good):
        overdue(one)
    look()
    assert len(jobs(good)) == 1
    assert not jobs(bad)
    assert "payload cannot be read" in fresh(bad.pk).last_error
    with pytest.raises(EnqueueError, match="payload cannot be read"):
        run_now(fresh(bad.pk))
    call_command("schedules", stdout=(out := io.StringIO()))
    assert "payload cannot be read" in out.getvalue()
    for page in ("", f"{bad.pk}/change/"):
        assert b"payload cannot be read" in admin_client.get(f"/admin/pgjobs/schedule/{page}").content


def test_a_kind_of_another_program_has_one_job_at_a_time() -> None:
    """F97: no mountain of jobs that nobody runs; and other workers, who may know it, come first."""
    one = schedule(kind="of a Go service", payload={}, cron="", every=dt.timedelta(days=1))  # nothing else falls due
    overdue(one, at=database_now())
    assert look() == 0, "left to others for five seconds"
    for n in range(2):
        overdue(one, at=database_now().replace(microsecond=0) - (10 - n) * SECOND)
        assert look() == 1
    assert len(jobs(one)) == 1
    assert [outcome for _, outcome in ticks(one)] == ["enqueued", "skipped"]


@override_settings(PGJOBS={"QUEUES": ["default"]})
def test_a_queue_that_does_not_exist_is_its_schedules_error() -> None:
    one, good = schedule(queue="nowhere"), schedule()
    for each in (one, good):
        overdue(each)
    look()
    assert "PGJOBS['QUEUES']" in fresh(one.pk).last_error
    assert len(jobs(good)) == 1


def test_a_hook_of_the_user_that_exits_is_its_schedules_error() -> None:
    def capture() -> Any:
        raise SystemExit("no")

    one = schedule()
    nominal = overdue(one)
    set_context_hooks(capture, lambda meta: threading.Lock())  # type: ignore[arg-type,return-value]
    try:
        look()
    finally:
        set_context_hooks(None, None)
    assert "SystemExit" in fresh(one.pk).last_error
    retried(one)
    look()
    assert jobs(one)[0].scheduled_for >= nominal


def test_an_error_of_the_statement_is_its_schedules_error(
    monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    one, good = schedule(), schedule()
    for each in (one, good):
        overdue(each)
    real = store.tick

    def tick(connection: Any, row: Any, new: Any, **options: Any) -> Any:
        return real(connection, row, new, **options | ({"following": options["times"][0]} if row.id == one.pk else {}))

    monkeypatch.setattr(store, "tick", tick)
    look()
    assert "does not come after" in fresh(one.pk).last_error
    assert len(jobs(good)) == 1


# Payloads made by code --------------------------------------------------------------------------------------------------


def test_an_error_of_the_database_does_not_tell_the_payload(transactional_db: None) -> None:
    """Whoever may see schedules sees their errors; payloads are for some of them."""
    one = schedule(every=SECOND, payload={"text": "open sesame"})
    Schedule.objects.update(next_run_at=database_now() - SECOND, last_tick_at=LAST)
    look()
    said = fresh(one.pk).last_error
    assert "violates check constraint" in said
    assert "sesame" not in said


def test_a_database_that_only_reads_is_no_error_of_a_schedule(
    transactional_db: None, caplog: pytest.LogCaptureFixture
) -> None:
    """F140: during a failover the worker's loop says so once; each schedule at each try would be a flood."""
    one = schedule()
    overdue(one)
    with connection.cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        with pytest.raises(InternalError, match="read-only"):
            look()
        cursor.execute("SET default_transaction_read_only = off")
    assert not caplog.records
    assert look() == 1


def test_a_callable_is_called_for_each_tick_with_its_time(handler: Any, transactional_db: None) -> None:
    one = make(handler, lambda at: {"hour": at.isoformat()}, misfire="all")
    nominal = overdue(one, MINUTE)
    calls = Payloads(lambda: None)
    wait_until(lambda: look(payloads=calls) == 1)
    wait_until(lambda: look(payloads=calls) == 1)
    assert [each.payload for each in jobs(one)] == [{"hour": (nominal + n * MINUTE).isoformat()} for n in range(2)]
    assert [each.scheduled_for for each in jobs(one)] == [nominal, nominal + MINUTE]


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (lambda: 1 / 0, "ZeroDivisionError"),
        (list, "returned list"),
        (lambda: {"x": {1}}, "payload.x is of type set"),
        (lambda: exit(1), "SystemExit"),
    ],
)
def test_a_callable_that_fails_is_called_again_and_its_tick_is_not_lost(
    handler: Any, transactional_db: None, payload: Any, said: str
) -> None:
    """F97"""
    works: list[bool] = []
    one, good = make(handler, lambda: {"a": 1} if works else payload()), schedule()
    for each in (one, good):
        nominal = overdue(each)
    calls = Payloads(lambda: None)
    look(payloads=calls)
    wait_until(lambda: look(payloads=calls) or fresh(one.pk).errors)
    assert said in fresh(one.pk).last_error
    assert len(jobs(good)) == 1
    works.append(True)
    retried(one)
    wait_until(lambda: look(payloads=calls) or jobs(one))
    assert [each.scheduled_for for each in jobs(one)] == [nominal]
    assert fresh(one.pk).errors == 0


def test_a_callable_that_hangs_holds_up_nobody(
    handler: Any, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F101"""
    opened = threading.Event()
    entered: list[int] = []

    def hang() -> dict[str, Any]:
        entered.append(1)
        opened.wait(30)
        return {"a": 1}

    one, good = make(handler, hang), schedule()
    for each in (one, good):
        overdue(each)
    calls = Payloads(lambda: None)
    assert look(payloads=calls) == 1
    assert len(jobs(good)) == 1
    monkeypatch.setattr(payloads_module, "LONGEST", 0.0)
    look(payloads=calls)
    assert "TimeoutError: schedule_payload has not returned" in fresh(one.pk).last_error
    retried(one)
    look(payloads=calls)
    assert (fresh(one.pk).errors, len(entered)) == (2, 1), "it is not called beside itself"
    opened.set()
    retried(one)
    wait_until(lambda: look(payloads=calls) or jobs(one))
    assert len(jobs(one)) == 1


def test_a_callable_whose_thread_cannot_start_is_called_again(
    handler: Any, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F101: the system was out of threads for a moment."""

    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("no thread")

    one = make(handler, lambda: {"a": 1})
    overdue(one)
    calls = Payloads(lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(payloads_module.threading.Thread, "start", no_thread)
        look(payloads=calls)
    assert "no thread" in fresh(one.pk).last_error
    retried(one)
    wait_until(lambda: look(payloads=calls) or jobs(one))


def test_a_tick_that_came_too_late_needs_no_payload(handler: Any) -> None:
    def never() -> dict[str, Any]:
        raise AssertionError("called for a tick that is not fired")

    @handler(kind="needy", every=60, schedule_payload=never, schedule_name="made")
    def needy(a: int) -> None: ...

    one = schedule(
        name="made", kind="needy", payload={}, payload_from="somewhere", max_lateness=SECOND, cron="0 0 1 1 *"
    )
    nominal = overdue(one, 5 * MINUTE)
    assert look() == 1
    assert ticks(one) == [(nominal, "missed")]
    assert fresh(one.pk).last_error == ""


def test_a_payload_whose_code_is_not_here_is_left_to_others_then_told() -> None:
    """F97: an old worker of a rolling deploy, or code that was rolled back."""
    one = schedule(payload_from="shop.jobs.gone")
    overdue(one, at=database_now())
    look()
    assert fresh(one.pk).errors == 0
    overdue(one, at=database_now() - 6 * SECOND)
    look()
    assert "no worker here has the code" in fresh(one.pk).last_error
    assert not Tick.objects.exists()


# Clocks and zones ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_the_sessions_zone_and_the_projects_change_nothing(
    transactional_db: None, session: str, use_tz: bool, zone: str
) -> None:
    """F91, F95: what is stored and compared are instants."""
    nominal = dt.datetime.now(dt.UTC).replace(second=0, microsecond=0) - MINUTE
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_schedule (name, kind, payload, cron, timezone, next_run_at)"
            " VALUES ('x', 'write_note', '{\"text\": \"x\"}', '*/7 * * * *', 'Europe/Kyiv', %s) RETURNING id",
            [nominal],
        )
        [id_] = cursor.fetchone()
    connection.close()
    with override_settings(USE_TZ=use_tz, TIME_ZONE=zone):
        with connection.cursor() as cursor:
            cursor.execute("SELECT set_config('TimeZone', %s, false)", [session])
        assert look() == 1
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT extract(epoch FROM t.scheduled_for)::float8, extract(epoch FROM j.scheduled_for)::float8,"
                " extract(epoch FROM s.next_run_at)::float8 FROM pgjobs_schedule s, pgjobs_tick t, pgjobs_job j"
                " WHERE s.id = %s AND t.job_id = j.id",
                [id_],
            )
            [(fired, handed_over, following)] = cursor.fetchall()
    connection.close()
    first = dt.datetime.now(dt.UTC) - MINUTE * 10
    assert fired == handed_over
    assert first.timestamp() < fired <= dt.datetime.now(dt.UTC).timestamp()
    minute = dt.datetime.fromtimestamp(following, dt.UTC).minute
    assert minute % 7 == 0
    assert dt.datetime.now(dt.UTC).timestamp() < following <= dt.datetime.now(dt.UTC).timestamp() + 420
