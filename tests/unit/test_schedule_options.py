"""What @job says about recurring."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pgjobs import job
from pgjobs.api.registry import registry
from pgjobs.checks import check_settings
from pgjobs.exceptions import ConfigurationError
from pgjobs.schedules import Schedule, sync

NOON = dt.datetime(2026, 12, 1, 12, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _registered_only_here() -> Iterator[None]:
    before = dict(registry._handlers)
    yield
    registry._handlers = before


def digest(a: int = 1) -> None: ...


def declared(function: Any = digest, /, **options: Any) -> list[dict[str, Any]]:
    registry._handlers = {}
    job(**options)(function)
    return sync.declared()


def test_the_direct_options() -> None:
    options = {"misfire": "all", "overlap": "skip", "max_lateness": dt.timedelta(hours=1), "schedule_payload": {"a": 2}}
    assert declared(cron="0 2 * * *", timezone="Europe/Kyiv", **options) == [
        {
            "name": "digest",
            "kind": "digest",
            "queue": None,
            "payload": {"a": 2},
            "payload_from": "",
            "cron": "0 2 * * *",
            "every": None,
            "timezone": "Europe/Kyiv",
            "misfire": "all",
            "overlap": "skip",
            "max_lateness": 3600.0,
        }
    ]


def test_several_of_one_handler_are_numbered_or_named() -> None:
    more = [Schedule(every=dt.timedelta(minutes=5)), Schedule(cron="@daily", name="nightly")]
    found = declared(every=60, schedules=more)
    assert [(one["name"], one["every"], one["cron"]) for one in found] == [
        ("digest", 60, ""),
        ("digest#2", 300, ""),
        ("nightly", None, "@daily"),
    ]
    assert [one["name"] for one in declared(schedules=more)] == ["digest", "nightly"]


def test_a_callable_makes_the_payload() -> None:
    def made() -> dict[str, Any]:
        return {"a": 1}

    [one] = declared(every=60, schedule_payload=made)
    assert one["payload"] == {}
    assert one["payload_from"].endswith("test_a_callable_makes_the_payload.<locals>.made")


@pytest.mark.parametrize("make", [lambda: {"a": 12}, lambda at: {"a": at.hour}, lambda at, b=1: {"a": at.hour}])
def test_a_callable_may_take_the_nominal_time(make: Any) -> None:
    assert Schedule(every=60, payload=make).make_payload(NOON) == {"a": 12}


def test_a_callable_has_to_return_a_dict() -> None:
    with pytest.raises(TypeError, match="returned list"):
        Schedule(every=60, payload=lambda: [1], name="x").make_payload(NOON)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cron": "* * * * *", "every": 60}, "either cron or every"),
        ({"every": 0.5}, "at least one second"),
        ({"every": dt.timedelta(days=36_526)}, "a century"),
        ({"every": 60, "max_lateness": dt.timedelta(days=36_526)}, "a century"),
        ({"every": 60, "max_lateness": 1e-7}, "above zero"),
        ({"every": dt.timedelta(0)}, "at least one second"),
        ({"every": "1 minute"}, "every takes seconds"),
        ({"every": float("nan")}, "every takes a duration"),
        ({"cron": 5}, "cron takes a text"),
        ({"every": 60, "misfire": "never"}, "misfire has to be one of skip, once, all"),
        ({"every": 60, "overlap": "no"}, "overlap has to be one of allow, skip, queue_one"),
        ({"every": 60, "timezone": 3}, "timezone takes a text"),
        ({"every": 60, "max_lateness": 0}, "max_lateness has to be above zero"),
        ({"every": 60, "max_lateness": -1}, "max_lateness takes a duration"),
        ({"every": 60, "schedule_payload": [1]}, "schedule_payload takes a dict"),
        ({"every": 60, "schedule_payload": {"b": 1}}, "no argument 'b'"),
        ({"every": 60, "schedule_payload": {"a": NOON}}, "schedule_payload.a is of type datetime"),
        ({"every": 60, "schedule_name": "x" * 256}, "1 to 255 bytes"),
        ({"misfire": "all"}, "misfire without cron or every"),
        ({"schedule_payload": {"a": 1}}, "schedule_payload without cron or every"),
        ({"schedules": ["* * * * *"]}, "schedules takes"),
        ({"schedules": [Schedule(every=1, name="x"), Schedule(every=2, name="x")]}, "two schedules are called 'x'"),
        ({"schedules": [Schedule()]}, "either cron or every"),
    ],
)
def test_what_cannot_work_is_refused_at_registration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        job(kind="refused", **options)(digest)
    assert registry.find("refused") is None


def test_a_handler_that_needs_arguments_needs_a_payload() -> None:
    def needy(a: int) -> None: ...

    with pytest.raises(ConfigurationError, match="needs the argument 'a'"):
        job(every=60)(needy)
    job(every=60, schedule_payload={"a": 1})(needy)


def test_two_handlers_with_one_name_of_a_schedule() -> None:
    def other() -> None: ...

    job(every=60, schedule_name="nightly")(digest)
    with pytest.raises(ConfigurationError, match=r"two schedules are called 'nightly', of .*digest and of .*other"):
        job(every=60, schedule_name="nightly")(other)


def test_what_cannot_be_read_is_an_error_of_the_checks() -> None:
    """F99: told by ``manage.py check`` and by ``run_jobs``, before anything runs."""
    job(kind="broken", cron="61 * * * *")(digest)
    job(kind="nowhere", cron="0 1 * * *", timezone="Europe/Nowhere")(digest)
    job(kind="fine", cron="0 1 * * *")(digest)
    assert [name for name, _ in sync.problems()] == ["broken", "nowhere"]
    found = [one for one in check_settings() if one.id == "pgjobs.E005"]
    assert len(found) == 2
    assert "test_schedule_options.digest" in found[0].msg


def test_a_fingerprint_is_of_what_is_declared() -> None:
    one = sync.fingerprint(declared(every=60))
    assert one == sync.fingerprint(declared(every=60))
    assert len({one, sync.fingerprint(declared(every=61)), sync.fingerprint(declared(every=60, overlap="skip"))}) == 3


def test_run_jobs_does_not_start_with_one_that_cannot_be_read() -> None:
    job(kind="broken", cron="61 * * * *")(digest)
    with pytest.raises(CommandError, match=r"Schedule 'broken': @job on .*minute '61'"):
        call_command("run_jobs")
