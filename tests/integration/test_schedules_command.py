"""manage.py schedules: what is scheduled, when it comes next, and what became of the last time."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from pgjobs.models import Schedule, Tick
from pgjobs.schedules import overview
from tests.factories import JobFactory

pytestmark = pytest.mark.django_db

NOW = dt.datetime(2026, 12, 1, 12, 30, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pgjobs.store.database_time", lambda connection: NOW)


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("schedules", *args, stdout=out)
    return out.getvalue()


def make(name: str, **fields: Any) -> Schedule:
    return Schedule.objects.create(**{"name": name, "kind": "add", "timezone": "UTC", **fields})


def lines() -> dict[str, str]:
    """What the table says, by the schedule's name."""
    return {line.split("  ")[0]: line for line in run().splitlines()[1:] if line}


def test_none() -> None:
    assert "There are no schedules" in run()
    assert json.loads(run("--json")) == []


def test_the_table() -> None:
    """Each in its own zone; an interval has none."""
    nightly = make("nightly report", cron="0 2 * * *", timezone="Europe/Kyiv")
    make("sync", every=dt.timedelta(minutes=5))
    job = JobFactory(done=True)
    Tick.objects.create(schedule=nightly, scheduled_for="2026-11-30T00:00Z", outcome="skipped")
    Tick.objects.create(schedule=nightly, scheduled_for="2026-12-01T00:00Z", job_id=job.pk)
    text = run()
    assert text.splitlines() == [
        "SCHEDULE        STATE  WHEN                ZONE         NEXT                        LAST",
        "nightly report  on     At 02:00 every day  Europe/Kyiv  Wed 2026-12-02 02:00 +0200  Tue 2026-12-01 02:00 +0200 done",
        "sync            on     Every 5 minutes     -            Tue 2026-12-01 12:35 +0000  -",
    ]


@pytest.mark.parametrize(
    ("tick", "says"),
    [
        ({"outcome": "enqueued", "job_id": 2**40}, "(job removed)"),
        ({"outcome": "queued"}, "queued"),
        ({"outcome": "skipped"}, "skipped"),
        ({"outcome": "missed"}, "missed"),
    ],
)
def test_the_last_outcome(tick: dict[str, Any], says: str) -> None:
    Tick.objects.create(schedule=make("one", cron="0 2 * * *"), scheduled_for="2026-12-01T02:00Z", **tick)
    assert lines()["one"].endswith("Tue 2026-12-01 02:00 +0000 " + says)


def test_states() -> None:
    make("paused", cron="0 2 * * *", enabled=False)
    make("retired", cron="0 2 * * *", retired_at=NOW, source="code")
    make("failing", cron="0 2 * * *", errors=2, last_error="ValueError: boom")
    make("unreadable", cron="never on sunday", errors=1, last_error="cron 'never on sunday': has 3 fields")
    make("nowhere", cron="0 2 * * *", timezone="Europe/Nowhere")
    make("due", cron="0 2 * * *", next_run_at="2026-12-01T02:00Z")
    make("by hand", cron="0 2 * * *", next_run_at="2026-12-01T12:31:07Z")
    found = lines()
    for name in ("paused", "retired", "failing"):
        assert found[name].split()[1] == name
    assert found["paused"].endswith("UTC   -     -") or " -  " in found["paused"]
    assert "never on sunday" in found["unreadable"]
    assert " due " in found["due"]
    assert "12:31:07 +0000" in found["by hand"]
    text = run()
    assert "\nfailing: ValueError: boom\n" in text
    assert "\nunreadable: cron 'never on sunday'" in text


def test_json() -> None:
    job = JobFactory(dead=True)
    one = make("weekly", cron="@weekly", timezone="Asia/Kathmandu", skipped=3, next_run_at="2026-12-01T12:00Z")
    Tick.objects.create(schedule=one, scheduled_for="2026-11-28T18:15Z", job_id=job.pk)
    [said] = json.loads(run("--json"))
    assert said == {
        "name": "weekly",
        "kind": "add",
        "queue": None,
        "state": "on",
        "source": "admin",
        "cron": "@weekly",
        "every": None,
        "words": "At 00:00 on Sunday",
        "timezone": "Asia/Kathmandu",
        "misfire": "once",
        "overlap": "allow",
        "next": [f"2026-12-{day:02}T18:15:00Z" for day in (5, 12, 19, 26)] + ["2027-01-02T18:15:00Z"],
        "due_since": "2026-12-01T12:00:00Z",
        "last": {"scheduled_for": "2026-11-28T18:15:00Z", "outcome": "enqueued", "job": job.pk, "status": "dead"},
        "skipped": 3,
        "errors": 0,
        "last_error": None,
    }


@override_settings(USE_TZ=False, TIME_ZONE="America/New_York")
def test_without_use_tz() -> None:
    """F91: naive times of the ORM are read in TIME_ZONE."""
    one = make("nightly", cron="0 2 * * *", timezone="Europe/Kyiv")
    Tick.objects.create(schedule=one, scheduled_for=dt.datetime(2026, 11, 30, 19, 0))  # noqa: DTZ001
    assert lines()["nightly"].endswith("Wed 2026-12-02 02:00 +0200  Tue 2026-12-01 02:00 +0200 (job removed)")


def test_it_asks_little(django_assert_num_queries: Any) -> None:
    for n in range(5):
        Tick.objects.create(schedule=make(f"s-{n}", cron="0 2 * * *"), scheduled_for=NOW, job_id=n)
    with django_assert_num_queries(4):
        run()


def test_errors() -> None:
    with pytest.raises(CommandError, match="'nowhere' is no alias"):
        run("--database", "nowhere")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (1, "Every second"), (60, "Every minute"), (300, "Every 5 minutes"), (3600, "Every hour"), (90, "Every 90 seconds"),
        (86_400, "Every day"), (604_800, "Every 7 days"), (1.5, "Every 1.5 seconds"),
    ],
)  # fmt: skip
def test_intervals_in_words(seconds: float, words: str) -> None:
    assert overview.every_in_words(dt.timedelta(seconds=seconds)) == words
