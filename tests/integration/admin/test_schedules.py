"""Schedules in the admin: rows that people make, edit, pause and run; rows of the code, which can be paused."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client, override_settings
from django.urls import reverse

from pgjobs.models import Job, Schedule, Tick
from tests.factories import JobFactory
from tests.rows import nothing_changes

from .conftest import page as job_page
from .conftest import told

pytestmark = pytest.mark.django_db

LIST = "/admin/pgjobs/schedule/"
NOW = dt.datetime(2026, 12, 1, 12, 30, tzinfo=dt.UTC)
FORM = {
    "name": "nightly", "kind": "add", "queue": "", "payload": '{"a": 1}', "cron": "0 2 * * *", "every": "",
    "timezone": "Europe/Kyiv", "misfire": "once", "overlap": "skip", "max_lateness": "", "enabled": "on",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.store.database_time", lambda connection: NOW)


def page(schedule: Schedule) -> str:
    return reverse("admin:pgjobs_schedule_change", args=(schedule.pk,))


def make(**fields: Any) -> Schedule:
    given = {"name": "nightly", "kind": "add", "payload": {"a": 1}, "cron": "0 2 * * *", "timezone": "Europe/Kyiv"}
    return Schedule.objects.create(**{**given, **fields})


def text(response: Any) -> str:
    return str(response.content.decode())


def problems(response: Any) -> dict[str, str]:
    return {name: " ".join(said) for name, said in response.context["adminform"].form.errors.items()}


def row(schedule: Schedule) -> dict[str, Any]:
    return Schedule.objects.values().get(pk=schedule.pk)


# Making and editing.


def test_a_new_one(ann: Client) -> None:
    empty = ann.get(LIST + "add/")
    initial = empty.context["adminform"].form.initial
    assert (initial["timezone"], initial["misfire"], initial["overlap"], initial["enabled"]) == (
        "UTC",
        "once",
        "allow",
        True,
    )
    assert '<option value="Asia/Kathmandu">' in text(empty)
    assert '<option value="scripted_async">' in text(empty)
    assert ann.post(LIST + "add/", FORM).status_code == 302
    made = Schedule.objects.get()
    assert (made.name, made.kind, made.queue, made.payload, made.cron, made.every, made.timezone) == (
        "nightly", "add", None, {"a": 1}, "0 2 * * *", None, "Europe/Kyiv",
    )  # fmt: skip
    assert (made.misfire, made.overlap, made.enabled, made.source, made.next_run_at) == (
        "once",
        "skip",
        True,
        "admin",
        None,
    )
    assert LogEntry.objects.get().is_addition()


def test_an_interval(ann: Client) -> None:
    assert ann.post(LIST + "add/", {**FORM, "cron": "", "every": "00:05:00"}).status_code == 302
    made = Schedule.objects.get()
    assert (made.cron, made.every) == ("", dt.timedelta(minutes=5))
    assert "Every 5 minutes" in text(ann.get(page(made)))


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"cron": "61 * * * *"}, "cron", "minute '61': cannot be read; write 0-59"),
        ({"cron": "0 0 30 2 *"}, "cron", "can never match: no such month has a day 30"),
        ({"cron": "* * * * * *"}, "cron", "6 fields; five are needed"),
        ({"cron": "@reboot"}, "cron", "not known"),
        ({"cron": ""}, "cron", "Say when"),
        ({"every": "00:05:00"}, "every", "not both"),
        ({"cron": "", "every": "00:00:00.5"}, "every", "At least one second"),
        ({"cron": "", "every": "-5"}, "every", "At least one second"),
        ({"cron": "", "every": "soon"}, "every", "Enter a valid duration"),
        ({"timezone": "Europe/Kyyiv"}, "timezone", "Did you mean 'Europe/Kyiv'"),
        ({"payload": "[1]"}, "payload", "JSON object"),
        ({"payload": "{a: 1}"}, "payload", "valid JSON"),
        ({"payload": "{}"}, "payload", "needs the argument 'a'"),
        ({"payload": '{"a": 1, "aa": 2}'}, "payload", "has no argument 'aa'"),
        ({"payload": '{"a": NaN}'}, "payload", "payload.a is nan"),
        ({"payload": '{"a": "\\ud800"}'}, "payload", "lone surrogate"),
        ({"payload": '{"a": "\\u0000"}'}, "payload", "NUL"),
        ({"payload": f'{{"a": {"9" * 5000}}}'}, "payload", "valid JSON"),
        ({"payload": "[" * 5000}, "payload", "valid JSON"),
        ({"kind": ""}, "kind", "required"),
        ({"kind": "x" * 256}, "kind", "255"),
        ({"name": ""}, "name", "required"),
        ({"name": "é" * 128}, "name", "At most 255 bytes"),
        ({"cron": "", "every": "40000 00:00:00"}, "every", "At most a century"),
        ({"max_lateness": "40000 00:00:00"}, "max_lateness", "At most a century"),
        ({"queue": "q" * 256}, "queue", "255"),
        ({"misfire": "twice"}, "misfire", "valid choice"),
        ({"max_lateness": "0"}, "max_lateness", "above zero"),
    ],
)
def test_what_cannot_fire_is_refused_with_a_sentence(
    ann: Client, change: dict[str, str], field: str, says: str
) -> None:
    """F99: when it is saved, not tonight."""
    found = problems(ann.post(LIST + "add/", {**FORM, **change}))
    assert says in found.pop(field)
    assert not found
    assert not Schedule.objects.exists()


def test_two_of_one_name(ann: Client) -> None:
    make()
    assert "already exists" in problems(ann.post(LIST + "add/", FORM))["name"]


@override_settings(PGJOBS={"QUEUES": ["mail"]})
def test_a_queue_that_does_not_exist(ann: Client) -> None:
    assert "none of PGJOBS['QUEUES']" in problems(ann.post(LIST + "add/", {**FORM, "queue": "post"}))["queue"]


def test_a_kind_of_other_code_is_taken_with_a_warning(ann: Client) -> None:
    response = ann.post(LIST + "add/", {**FORM, "kind": "elsewhere.report"})
    assert response.status_code == 302
    assert "No handler here is called “elsewhere.report”" in told(response)


def test_only_what_was_edited_is_written(ann: Client) -> None:
    """Meanwhile a worker moves the next time; the page was opened before."""
    schedule = make(overlap="skip")
    following = dt.datetime(2026, 12, 2, tzinfo=dt.UTC)
    original = ScheduleSaver(schedule, following)
    with original:
        response = ann.post(page(schedule), {**FORM, "queue": "slow"})
    assert response.status_code == 302
    after = row(schedule)
    assert (after["queue"], after["next_run_at"], after["last_tick_at"]) == ("slow", following, NOW)
    assert "Queue" in LogEntry.objects.get().get_change_message()


class ScheduleSaver:
    """A worker's tick between the moment at which the form reads the row and the one at which it writes."""

    def __init__(self, schedule: Schedule, following: dt.datetime) -> None:
        self.patch = pytest.MonkeyPatch()
        genuine = Schedule.save

        def save(row: Schedule, *args: Any, **kwargs: Any) -> None:
            Schedule.objects.filter(pk=schedule.pk).update(next_run_at=following, last_tick_at=NOW)
            genuine(row, *args, **kwargs)

        self.patch.setattr(Schedule, "save", save)

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self.patch.undo()


def test_saving_without_an_edit_changes_nothing(ann: Client) -> None:
    schedule = make(overlap="skip", next_run_at=NOW)
    before = row(schedule)
    assert ann.post(page(schedule), FORM).status_code == 302
    assert row(schedule) == before


def test_an_edit_starts_from_now(ann: Client) -> None:
    """F96: the table's trigger forgets the next time of the old rule."""
    schedule = make(overlap="skip", next_run_at=NOW, errors=3, last_error="boom")
    ann.post(page(schedule), {**FORM, "cron": "*/5 * * * *"})
    after = row(schedule)
    assert (after["next_run_at"], after["errors"], after["last_error"]) == (None, 0, "")


def test_deleting_takes_its_ticks_along_and_lists_none(ann: Client, django_assert_max_num_queries: Any) -> None:
    schedule, of_code = make(), make(name="of code", source="code")
    Tick.objects.bulk_create(Tick(schedule=schedule, scheduled_for=NOW - dt.timedelta(minutes=n)) for n in range(300))
    with django_assert_max_num_queries(20):
        assert text(ann.get(f"{LIST}{schedule.pk}/delete/")).count("<li>") < 20
    assert ann.post(f"{LIST}{schedule.pk}/delete/", {"post": "yes"}).status_code == 302
    assert list(Schedule.objects.all()) == [of_code]
    assert not Tick.objects.exists()
    assert ann.post(f"{LIST}{of_code.pk}/delete/", {"post": "yes"}).status_code == 403
    ann.post(LIST, {"action": "delete_selected", "_selected_action": [of_code.pk], "post": "yes"})
    assert Schedule.objects.filter(pk=of_code.pk).exists()
    Schedule.objects.update(retired_at=NOW)
    ann.post(LIST, {"action": "delete_selected", "_selected_action": [of_code.pk], "post": "yes"})
    assert not Schedule.objects.exists()


# The code's rows.


def test_of_a_row_of_the_code_only_enabled_is_edited(ann: Client) -> None:
    """F97: what the code says is changed in the code."""
    schedule = make(source="code")
    said = text(ann.get(page(schedule)))
    assert "The code says when and what" in said
    assert 'name="cron"' not in said
    assert 'name="enabled"' in said
    before = row(schedule)
    forged = {
        **FORM,
        "cron": "* * * * *",
        "kind": "echo",
        "payload": "{}",
        "name": "x",
        "overlap": "allow",
        "queue": "q",
    }
    assert ann.post(page(schedule), forged).status_code == 302
    assert row(schedule) == before
    forged.pop("enabled")
    assert ann.post(page(schedule), forged).status_code == 302
    after = row(schedule)
    assert not after["enabled"]
    assert {name: after[name] for name in ("cron", "kind", "payload", "name", "overlap", "queue")} == {
        name: before[name] for name in ("cron", "kind", "payload", "name", "overlap", "queue")
    }


def test_a_retired_one_is_only_looked_at(ann: Client) -> None:
    schedule = make(source="code", retired_at=NOW - dt.timedelta(days=3))
    said = text(ann.get(page(schedule)))
    assert "It left the code 3 d ago and fires no more" in said
    assert "Run now" not in said
    assert 'value="pause"' not in said
    assert 'name="enabled"' not in said
    with nothing_changes():
        response = ann.post(f"{LIST}{schedule.pk}/run/")
    assert "left the code" in told(response)


# What a page shows.


def test_the_next_five_times_in_both_zones(ann: Client) -> None:
    said = text(ann.get(page(make())))
    assert "At 02:00 every day, Europe/Kyiv" in said
    for day in ("Wed 2", "Thu 3", "Fri 4", "Sat 5", "Sun 6"):
        assert f"<td>{day} Dec 2026, 02:00 EET</td><td>{day} Dec 2026, 00:00 UTC</td>" in said
    assert "Mon 7 Dec" not in said
    assert "in 11 h 30 min" in said


@override_settings(TIME_ZONE="Asia/Kathmandu")
def test_a_viewer_in_the_same_zone_sees_them_once(ann: Client) -> None:
    said = text(ann.get(page(make(timezone="Asia/Kathmandu"))))
    assert "<td>Wed 2 Dec 2026, 02:00 +0545</td><td data-pgj-browser" in said


@override_settings(USE_TZ=False, TIME_ZONE="America/New_York")
def test_without_use_tz(ann: Client) -> None:
    """F91: naive times of the ORM are in TIME_ZONE."""
    schedule = make(next_run_at=dt.datetime(2026, 12, 1, 19, 0), retry_at=dt.datetime(2026, 12, 1, 7, 31))  # noqa: DTZ001
    Tick.objects.create(schedule=schedule, scheduled_for=dt.datetime(2026, 11, 30, 19, 0))  # noqa: DTZ001
    said = text(ann.get(page(schedule)))
    assert "<td>Wed 2 Dec 2026, 02:00 EET</td><td>Tue 1 Dec 2026, 19:00 EST</td>" in said
    assert "Tue 1 Dec 2026, 02:00 EET</span>" in said
    assert "It is tried again in 1 min" in said
    assert ann.get(LIST).status_code == 200


def test_the_last_ticks_lead_to_their_jobs(ann: Client) -> None:
    schedule = make()
    job = JobFactory(dead=True)
    for n, (outcome, id_) in enumerate(
        [("enqueued", job.pk), ("enqueued", 2**40), ("skipped", None), ("missed", None)]
    ):
        Tick.objects.create(
            schedule=schedule,
            scheduled_for=NOW - dt.timedelta(days=n),
            outcome=outcome,
            job_id=id_,
        )
    Tick.objects.update(created_at=NOW + dt.timedelta(seconds=2))
    said = text(ann.get(page(schedule)))
    assert f'<span class="pgj-badge is-dead">Dead</span> <a href="{job_page(job)}">#{job.pk}</a>' in said
    assert f"#{2**40}, removed since" in said
    assert said.count("<td>skipped</td>") == said.count("<td>missed</td>") == 1
    assert "<td>2.0 s</td>" in said or "<td>2 s</td>" in said
    listed = text(ann.get(LIST))
    assert f">#{job.pk}</a>" in listed


def test_errors_and_states(ann: Client) -> None:
    """F101: what is wrong with a schedule is seen on it."""
    make(name="failing", errors=2, last_error="ValueError: <boom>\nmore")
    make(name="unreadable", cron="never on sunday")
    make(name="nowhere", timezone="Europe/Nowhere")
    make(name="off", enabled=False)
    make(name="gone", source="code", retired_at=NOW)
    make(name="due", next_run_at=NOW - dt.timedelta(days=40))
    listed = text(ann.get(LIST))
    for said in ("Failing", "ValueError: &lt;boom&gt;", "never on sunday", "Paused", "Retired", "due since"):
        assert said in listed
    for schedule in Schedule.objects.all():
        said = text(ann.get(page(schedule)))
        if schedule.name == "failing":
            assert "ValueError: &lt;boom&gt;<br>more" in said
        if schedule.name == "due":
            assert "A tick is due since 40 d: is a worker running?" in said
        if schedule.name == "off":
            assert "nothing is caught up then" in said


def test_many_schedules_ask_as_little_as_one(ann: Client, django_assert_max_num_queries: Any) -> None:
    for n in range(20):
        Tick.objects.create(schedule=make(name=f"s-{n}"), scheduled_for=NOW, job_id=n)
    with django_assert_max_num_queries(10):
        ann.get(LIST)


def test_a_jobs_page_names_its_schedule(ann: Client) -> None:
    schedule = make(name="a <b>")
    said = text(ann.get(job_page(JobFactory(schedule_id=schedule.pk, scheduled_for=NOW))))
    assert f'<a href="{page(schedule)}">a &lt;b&gt;</a>' in said
    assert "#987654" in text(ann.get(job_page(JobFactory(schedule_id=987654))))


# Run now, pause, resume.


def test_run_now_is_a_separate_job(ann: Client) -> None:
    """F96: the schedule is left alone."""
    schedule = make(next_run_at=NOW + dt.timedelta(hours=1))
    before = row(schedule)
    response = ann.post(f"{LIST}{schedule.pk}/run/")
    job = Job.objects.get()
    assert response.url == page(schedule)
    assert f'nightly runs now, as job <a href="{job_page(job)}">#{job.pk}</a>' in told(response)
    assert (job.kind, job.payload, job.queue, job.schedule_id, job.scheduled_for) == (
        "add",
        {"a": 1},
        "sums",
        schedule.pk,
        NOW,
    )
    assert row(schedule) == before
    assert not Tick.objects.exists()
    assert f"job #{job.pk}" in LogEntry.objects.get().get_change_message()
    ann.post(LIST, {"action": "run", "_selected_action": [schedule.pk]})
    assert Job.objects.count() == 2


def test_run_now_of_a_payload_that_does_not_fit(ann: Client) -> None:
    schedule = make(payload={"c": 1})
    with nothing_changes():
        said = told(ann.post(f"{LIST}{schedule.pk}/run/"))
    assert said.startswith("nightly: payload.c: add() has no argument 'c'")
    assert not LogEntry.objects.exists()


def test_pausing_and_resuming_from_the_list(ann: Client) -> None:
    first, second, gone = make(), make(name="second", source="code"), make(name="gone", source="code", retired_at=NOW)
    ids = [first.pk, second.pk, gone.pk]
    response = ann.post(LIST, {"action": "pause", "_selected_action": ids})
    assert told(response) == "2 schedules paused."
    assert set(Schedule.objects.values_list("name", "enabled")) == {
        ("nightly", False),
        ("second", False),
        ("gone", True),
    }
    assert "1 schedule resumed." in told(ann.post(LIST, {"action": "resume", "_selected_action": [first.pk]}))
    assert Schedule.objects.get(enabled=False).name == "second"
    assert LogEntry.objects.count() == 3


def test_pausing_and_resuming_from_the_page(ann: Client, staff: Callable[..., Client]) -> None:
    """The button sends what the list's action sends: whoever is on call need not look for the box at the end."""
    schedule = make(source="code")
    for action, told_after, enabled in (
        ("pause", "1 schedule paused.", False),
        ("resume", "1 schedule resumed.", True),
    ):
        form = next(form for form in text(ann.get(page(schedule))).split("<form")[1:] if f'action="{LIST}"' in form)
        fields = dict(re.findall(r'name="(\w+)" value="(\w+)"', form))
        assert fields.pop("csrfmiddlewaretoken")
        assert fields == {"index": "0", "_selected_action": str(schedule.pk), "action": action}
        assert told(ann.post(LIST, fields)) == told_after
        assert row(schedule)["enabled"] is enabled
    assert 'value="pause"' not in text(staff("view_schedule").get(page(schedule)))


# Who may.


@pytest.mark.parametrize("codename", ["view_schedule", "view_job", "add_schedule", "delete_schedule", "retry_job"])
def test_without_change_one_changes_nothing(staff: Callable[..., Client], codename: str) -> None:
    schedule = make()
    client = staff(codename)
    before = row(schedule)
    client.post(page(schedule), {**FORM, "cron": "* * * * *"})
    assert client.post(f"{LIST}{schedule.pk}/run/").status_code == 403
    for action in ("run", "pause", "resume"):
        client.post(LIST, {"action": action, "_selected_action": [schedule.pk]})
    assert row(schedule) == before
    assert not Job.objects.exists()


def test_payloads_are_for_who_may_see_them(staff: Callable[..., Client]) -> None:
    schedule = make(kind="echo", payload={"word": "sesame", "password": "hunter22"})
    assert "sesame" not in text(staff("view_schedule").get(page(schedule)))
    said = text(staff("view_schedule", "view_payload").get(page(schedule)))
    assert "sesame" in said
    assert "hunter22" not in said
    assert "hunter22" in text(staff("view_schedule", "change_schedule").get(page(schedule)))  # who edits it sees it


def test_a_payload_that_code_makes_is_named(ann: Client) -> None:
    schedule = make(source="code", payload={}, payload_from="shop.jobs.last_week")
    assert "made for each tick by shop.jobs.last_week" in text(ann.get(page(schedule)))


def test_run_is_posted_and_not_forged(ann: Client) -> None:
    schedule = make()
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = ann.cookies
    with nothing_changes():
        assert ann.get(f"{LIST}{schedule.pk}/run/").status_code == 405
        assert strict.post(f"{LIST}{schedule.pk}/run/").status_code == 403
        assert Client().post(f"{LIST}{schedule.pk}/run/").status_code == 302
        assert ann.post(f"{LIST}{10**30}/run/").status_code == 403
