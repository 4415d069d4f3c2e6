"""Settings: defaults, sources, and what is refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
from typing import Any

import pytest
from django.test import override_settings

from pgjobs import Exponential
from pgjobs.conf import FIELDS, Settings, get_settings, read
from pgjobs.exceptions import ConfigurationError


def problems(given: Any, **environ: str) -> list[str]:
    return read(given, environ)[1]


def test_defaults_are_those_of_the_design() -> None:
    settings, found = read({}, {})
    assert found == []
    expected = {
        "DATABASE": "default", "LEASE": 15, "HEARTBEAT": 5, "POLL_INTERVAL": 1, "LISTEN_POLL_INTERVAL": 10, "GRACE": 25,
        "THREADS": 4, "PROCESSES": 1, "ASYNC_CONCURRENCY": 100, "PREFETCH_MS": 100, "MAX_ATTEMPTS": 10, "TIMEOUT": 300,
        "TIMEOUT_GRACE": 5, "BACKOFF": Exponential(base=5, cap=21600, jitter=1), "MAX_PAYLOAD_BYTES": 1024 * 1024, "NOTIFY": True,
    }  # fmt: skip
    assert {name: getattr(settings, name) for name in expected} == expected
    assert settings.watchdog == 12
    days = {"done": 7, "cancelled": 7, "failed": 90, "dead": 90}
    assert settings.RETENTION == {status: dt.timedelta(days=n) for status, n in days.items()}


def test_every_setting_says_what_it_means() -> None:
    source = inspect.getsource(Settings)
    for name in FIELDS:
        after = source.split(f"    {name}: ", 1)[1]
        assert after.split("\n", 2)[1].strip().startswith('"""'), name
    assert set(Settings().effective()) == set(FIELDS)


def test_they_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().LEASE = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"LEASE": 60}, 60.0),
        ({"LEASE": dt.timedelta(minutes=1)}, 60.0),
        ({"WATCHDOG": None}, None),
        ({"TIMEOUT": None}, None),
        ({"GRACE": 0}, 0.0),
        ({"PREFETCH_MS": 0}, 0),
        ({"NOTIFY": False}, False),
        ({"QUEUES": ["a", "b"]}, ("a", "b")),
        ({"QUEUES": None}, None),
        ({"BACKOFF": {"base": 1}}, Exponential(base=1)),
        ({"BACKOFF": Exponential(cap=9)}, Exponential(cap=9)),
    ],
)
def test_values_are_converted(given: dict[str, Any], expected: Any) -> None:
    settings, found = read(given, {})
    [name] = given
    assert (getattr(settings, name), found) == (expected, [])


@pytest.mark.parametrize(
    ("age", "kept"),
    [
        ("7 days", dt.timedelta(7)), ("1 hour", dt.timedelta(hours=1)), ("2 weeks", dt.timedelta(14)),
        (60, dt.timedelta(minutes=1)), (dt.timedelta(1), dt.timedelta(1)), (None, None), (0, dt.timedelta(0)),
    ],
)  # fmt: skip
def test_retention_by_status_none_is_for_ever_and_zero_is_at_once(age: Any, kept: dt.timedelta | None) -> None:
    """F68, F70"""
    settings, found = read({"RETENTION": {"done": age}}, {})
    assert found == []
    assert settings.RETENTION["done"] == kept
    assert settings.RETENTION["dead"] == dt.timedelta(days=90)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"LEESE": 5}, "'LEESE' is not a setting; did you mean 'LEASE'?"),
        ({"lease": 5}, "did you mean 'LEASE'?"),
        ({"nonsense": 5}, "'nonsense' is not a setting."),
        ({5: 5}, "5 is not a setting."),
        ([], "PGJOBS has to be a dict, not list."),
        ({"LEASE": 0}, "LEASE: has to be above zero seconds, not 0."),
        ({"LEASE": -1}, "LEASE: has to be above zero seconds"),
        ({"LEASE": "15"}, "LEASE: has to be seconds or a timedelta, not '15'."),
        ({"LEASE": True}, "LEASE: has to be seconds or a timedelta"),
        ({"LEASE": None}, "LEASE: has to be seconds or a timedelta"),
        ({"LEASE": float("nan")}, "LEASE: has to be above zero"),
        ({"LEASE": float("inf")}, "LEASE: has to be above zero"),
        ({"GRACE": -1}, "GRACE: has to be zero or more seconds"),
        ({"THREADS": 0}, "THREADS: has to be a whole number above zero, not 0."),
        ({"THREADS": 2.0}, "THREADS: has to be a whole number"),
        ({"THREADS": True}, "THREADS: has to be a whole number"),
        ({"MAX_ATTEMPTS": 0}, "MAX_ATTEMPTS: has to be a whole number above zero"),
        ({"NOTIFY": 1}, "NOTIFY: has to be True or False, not 1."),
        ({"DATABASE": ""}, "DATABASE: has to be a text"),
        ({"DATABASE": None}, "DATABASE: has to be a text"),
        ({"BACKOFF": 5}, 'BACKOFF: has to be {"base": seconds'),
        ({"BACKOFF": {"bass": 5}}, "(unknown: bass)"),
        ({"BACKOFF": {"base": -5}}, "BACKOFF: has to be zero or more"),
        ({"RETENTION": {"don": 5}}, "RETENTION: knows no status ['don']"),
        ({"RETENTION": {"done": "soon"}}, "done: 'soon' is no age like '7 days'"),
        ({"RETENTION": {"done": "-1 days"}}, "done: '-1 days' is no age"),
        ({"RETENTION": 5}, "RETENTION: has to be a dict"),
        ({"QUEUES": "mail"}, "QUEUES: has to be a list of queue names, or None."),
        ({"QUEUES": [""]}, "QUEUES: has to be a list of queue names"),
    ],
)
def test_what_cannot_work_is_told(given: Any, message: str) -> None:
    """F136"""
    [found] = problems(given)
    assert message in found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"HEARTBEAT": 6}, "HEARTBEAT (6 s) has to be at most a third of LEASE (15 s)"),  # F3
        ({"LEASE": 1}, "HEARTBEAT (5 s) has to be at most a third of LEASE (1 s)"),
        ({"WATCHDOG": 15}, "WATCHDOG (15 s) has to be shorter than LEASE (15 s)"),
        ({"WATCHDOG": 4}, "WATCHDOG (4 s) has to be longer than HEARTBEAT (5 s)"),
        ({"TICK_RETENTION": 86_400}, "TICK_RETENTION (86400 s) has to be at least two days"),  # F86
    ],
)
def test_contradictions_are_told(given: Any, message: str) -> None:
    assert any(message in found for found in problems(given))


def test_every_problem_is_told_at_once() -> None:
    assert len(problems({"LEESE": 5, "THREADS": 0, "NOTIFY": "yes"})) == 3


def test_a_third_is_a_third() -> None:
    assert problems({"LEASE": 0.3, "HEARTBEAT": 0.1}) == []


# The environment -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("LEASE", "30", 30.0), ("NOTIFY", "false", False), ("DATABASE", "other", "other"), ("DATABASE", '"5"', "5"),
        ("TIMEOUT", "null", None), ("QUEUES", '["a", "b"]', ("a", "b")), ("BACKOFF", '{"base": 1}', Exponential(base=1)),
    ],
)  # fmt: skip
def test_the_environment_comes_before_the_settings(name: str, text: str, value: Any) -> None:
    settings, found = read({name: "ignored, and not even checked"}, {f"PGJOBS_{name}": text})
    assert (getattr(settings, name), found) == (value, [])


def test_what_cannot_work_in_the_environment_is_told() -> None:
    assert problems({}, PGJOBS_LEASE="soon") == ["LEASE: has to be seconds or a timedelta, not 'soon'."]
    assert problems({}, PGJOBS_LEASE="1") != []


def test_other_variables_are_no_settings() -> None:
    assert problems({}, PGJOBS_LOG_LEVEL="DEBUG", LEASE="5") == []


# In force ------------------------------------------------------------------------------------------------------------


def test_a_change_is_seen_and_undone() -> None:
    with override_settings(PGJOBS={"THREADS": 9}):
        assert get_settings().THREADS == 9
        with override_settings(PGJOBS={"THREADS": 0, "LEESE": 1}), pytest.raises(ConfigurationError) as caught:
            get_settings()
    assert "THREADS: has to be a whole number" in str(caught.value)
    assert "did you mean 'LEASE'" in str(caught.value)
    assert get_settings().THREADS == 4


def test_the_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGJOBS_THREADS", "7")
    with override_settings(PGJOBS={"THREADS": 9}):
        assert get_settings().THREADS == 7
    monkeypatch.undo()
    with override_settings(PGJOBS={}):
        assert get_settings().THREADS == 4


@pytest.mark.parametrize(
    "secret", ["short", "x" * 256, "with a space in between", "ünïcödé-secret-text", 1234567890123456, ""]
)
def test_a_secret_that_cannot_be_one_is_refused_and_not_quoted(secret: Any) -> None:
    [problem] = problems({"TRIGGER_SECRET": secret})
    assert problem.startswith("TRIGGER_SECRET: has to be a text of 16 to 255 visible ASCII characters")
    assert not secret or str(secret) not in problem


def test_a_secret_is_printed_nowhere() -> None:
    secret = "12345678901234567890"  # noqa: S105
    settings, found = read({}, {"PGJOBS_TRIGGER_SECRET": secret})
    assert (settings.TRIGGER_SECRET, found) == (secret, [])  # digits of an environment variable stay a text
    assert secret not in repr(settings)
    assert secret not in str(settings.effective())
    assert [s.effective()["TRIGGER_SECRET"] for s in (settings, Settings())] == ["(set)", None]
