"""sync_schedules: what the code declares, and whose code is in force while several versions run (F97)."""

from __future__ import annotations

import datetime as dt
import logging
from typing import Any

import pytest
from django.db import connection

from pgjobs import store
from pgjobs.conf import get_settings
from pgjobs.models import Declaration, Schedule
from pgjobs.schedules import sync
from tests.integration.store.conftest import Hold
from tests.rows import database_now
from tests.ticking import MINUTE, fresh, look, overdue, schedule

pytestmark = pytest.mark.django_db


class Code:
    """One version of a project's code."""

    def __init__(self, *names: str, project: str = "", **options: Any) -> None:
        self.project = project
        self.declared = [
            {
                "name": name, "kind": "write_note", "queue": None, "payload": {"text": "x"}, "payload_from": "",
                "cron": "", "every": 60, "timezone": None, "misfire": "once", "overlap": "allow", "max_lateness": None,
            }
            | options
            for name in names
        ]  # fmt: skip

    @property
    def fingerprint(self) -> str:
        return sync.fingerprint(self.declared)

    def starts(self, **options: Any) -> dict[str, str]:
        """A worker of it starts: what was done, by name."""
        defaults = {"zone": "UTC", "patience": 300.0}
        done = store.sync_schedules(connection, self.project, self.fingerprint, self.declared, **defaults | options)
        return dict(done)

    def lives(self) -> str:
        """A worker of it asks, each minute, whose turn it is."""
        return store.declaration_state(connection, self.project, self.fingerprint, patience=300.0)


def in_force() -> set[str]:
    return set(Schedule.objects.filter(retired_at=None).values_list("name", flat=True))


def away(code: Code, seconds: float = 301) -> None:
    """No worker of it has been seen for so long."""
    ago = database_now() - dt.timedelta(seconds=seconds)
    Declaration.objects.filter(fingerprint=code.fingerprint).update(seen_at=ago)


def test_what_is_declared_becomes_rows() -> None:
    code = Code("a", "b", cron="0 3 * * *", every=None, timezone="Europe/Kyiv", max_lateness=90, overlap="skip")
    assert code.starts() == {"a": "created", "b": "created"}
    one = Schedule.objects.get(name="a")
    assert (one.kind, one.payload, one.cron, one.every, one.timezone) == (
        "write_note",
        {"text": "x"},
        "0 3 * * *",
        None,
        "Europe/Kyiv",
    )
    assert (one.overlap, one.misfire, one.max_lateness) == ("skip", "once", dt.timedelta(seconds=90))
    assert (one.source, one.enabled, one.retired_at, one.next_run_at) == ("code", True, None, None)
    assert code.starts() == {}
    assert fresh(one.pk).revision == 0


def test_the_zone_is_that_of_the_first_worker_and_stays() -> None:
    """F95"""
    Code("a").starts(zone="Asia/Tokyo")
    Code("a").starts(zone="UTC")
    Code("a", overlap="skip").starts(zone="UTC")
    assert Schedule.objects.get().timezone == "Asia/Tokyo"
    Code("a", timezone="Europe/Kyiv").starts()
    assert Schedule.objects.get().timezone == "Europe/Kyiv"


def test_a_change_starts_from_now_and_the_rest_is_left_alone() -> None:
    Code("a").starts()
    one = Schedule.objects.get()
    nominal = overdue(one)
    assert Code("a", payload={"text": "y"}).starts() == {"a": "updated"}
    assert fresh(one.pk).next_run_at == nominal, "when it fires has not changed"
    assert Code("a", every=120).starts() == {"a": "updated"}
    assert fresh(one.pk).next_run_at is None
    assert fresh(one.pk).every == 2 * MINUTE


def test_what_left_the_code_is_retired_and_returns() -> None:
    """F97"""
    Code("a", "b").starts()
    one = Schedule.objects.get(name="b")
    overdue(one)
    assert Code("a").starts() == {"b": "retired"}
    assert fresh(one.pk).retired_at is not None
    assert look() == 1, "a, which has no time yet"
    assert Code("a", "b", every=61).starts()["b"] == "restored"
    assert fresh(one.pk).next_run_at is None


def test_what_is_paused_stays_paused() -> None:
    Code("a").starts()
    Schedule.objects.update(enabled=False)
    Code("a").starts()
    Code("a", every=120).starts()
    assert Schedule.objects.get().enabled is False


def test_an_old_worker_neither_brings_back_nor_changes_nor_retires() -> None:
    """F97: a rolling deploy, in which an old process starts once more (a crash, a recycled child)."""
    old, new = Code("gone", "changed"), Code("changed", "added", every=120)
    old.starts()
    new.starts()
    before = list(Schedule.objects.order_by("id").values())
    assert old.starts() == {"": "outdated"}
    assert old.lives() == "outdated"
    assert new.lives() == "current"
    assert list(Schedule.objects.order_by("id").values()) == before
    assert in_force() == {"changed", "added"}


def test_a_code_that_declares_nothing_any_more_is_new_as_well() -> None:
    """F97"""
    old, new = Code("a"), Code()
    old.starts()
    assert new.starts() == {"a": "retired"}
    assert old.starts() == {"": "outdated"}
    assert in_force() == set()


def test_a_rollback_takes_over_when_the_newer_code_has_been_away() -> None:
    old, new = Code("a"), Code("b")
    old.starts()
    new.starts()
    away(new, 299)
    assert old.lives() == "outdated"
    away(new)
    assert old.lives() == "stale"
    assert old.starts() == {"a": "restored", "b": "retired"}
    assert (old.lives(), new.lives()) == ("current", "outdated")
    assert new.starts() == {"": "outdated"}, "a late process of the newer one"


def test_a_rollback_that_will_not_wait() -> None:
    old, new = Code("a"), Code("b")
    old.starts()
    new.starts()
    assert old.starts(force=True) == {"a": "restored", "b": "retired"}


def test_the_code_in_force_is_seen_while_its_workers_live() -> None:
    code = Code("a")
    code.starts()
    away(code)
    assert code.lives() == "current"
    assert Declaration.objects.get().seen_at > database_now() - MINUTE
    assert Code("b").lives() == "outdated"


def test_no_schedules_leave_no_trace() -> None:
    assert Code().starts() == {}
    assert Code().lives() == "unknown"
    assert not Declaration.objects.exists()


def test_projects_that_share_a_queue_retire_only_their_own() -> None:
    one, other = Code("a", project="one"), Code("b", project="other")
    one.starts()
    other.starts()
    assert in_force() == {"a", "b"}
    assert Code("a", project="other").starts() == {"a": "taken", "b": "retired"}
    assert Schedule.objects.get(name="a").project == "one"


def test_an_admins_row_of_that_name_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    mine = schedule(name="a")
    assert Code("a").starts() == {"a": "taken"}
    assert fresh(mine.pk).source == "admin"
    assert Code().starts() == {}
    assert fresh(mine.pk).retired_at is None


def test_a_row_that_somebody_holds_is_told_and_comes_next_time(hold_row: Hold) -> None:
    Code("a", "b").starts()
    row = Schedule.objects.get(name="a")
    release = hold_row(row.pk, table="pgjobs_schedule")
    assert Code("a", "b", every=120).starts() == {"a": "busy", "b": "updated"}
    assert Code("b", every=120).starts() == {"a": "busy"}
    release()
    assert Code("b", every=120).starts() == {"a": "retired"}


def test_the_worker_says_once_that_its_code_is_outdated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Code("a"), Code("b")
    monkeypatch.setattr(sync, "declared", lambda: old.declared)
    mine = sync.Declarations(get_settings())
    with caplog.at_level(logging.WARNING, "pgjobs"):
        assert mine.step(connection)
        new.starts()
        assert mine.step(connection)
        assert mine.step(connection)
    assert [record.message[:40] for record in caplog.records] == ["newer code declares other schedules: thi"]
    away(new)
    assert mine.step(connection)
    assert (mine.state, in_force()) == ("current", {"a"})
    new.starts(force=True)
    sync.sync(connection, get_settings())
    assert in_force() == {"a"}
