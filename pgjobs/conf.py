"""Every setting: its name, default and meaning. ``PGJOBS = {...}`` in Django's settings overrides the defaults.

Options of ``run_jobs`` come before environment variables (``PGJOBS_LEASE=30``), those before settings, those before the
defaults. Durations are seconds or timedeltas. What cannot work together is refused at start, by a system check and by
:func:`get_settings`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from django.conf import settings as django_settings
from django.core.signals import setting_changed

from .backoff import Exponential
from .exceptions import ConfigurationError

RETENTION = {"done": "7 days", "cancelled": "7 days", "failed": "90 days", "dead": "90 days"}


def _duration(zero: bool = False, none: bool = False) -> dict[str, Any]:
    return {"duration": True, "zero": zero, "none": none}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The effective settings. Times are seconds."""

    DATABASE: str = "default"
    """Alias of the database that holds the queue."""
    LEASE: float = field(default=15.0, metadata=_duration())
    """How long a worker may stay silent before its jobs are given to others."""
    HEARTBEAT: float = field(default=5.0, metadata=_duration())
    """How often a worker extends its leases; at most a third of LEASE."""
    WATCHDOG: float | None = field(default=None, metadata=_duration(none=True))
    """A claim loop that does not turn for so long ends its process; None: 0.8 × LEASE; always shorter than LEASE."""
    POLL_INTERVAL: float = field(default=1.0, metadata=_duration())
    """How often an idle worker looks for due jobs when it cannot listen (a random fifth is added)."""
    LISTEN_POLL_INTERVAL: float = field(default=10.0, metadata=_duration())
    """The same while LISTEN works."""
    GRACE: float = field(default=25.0, metadata=_duration(zero=True))
    """How long a stopping worker waits for the handlers that run."""
    THREADS: int = 4
    """Handlers that run at once in one process."""
    PROCESSES: int = 1
    """Worker processes of one ``run_jobs``."""
    ASYNC_CONCURRENCY: int = 100
    """``async def`` handlers that run at once in one process."""
    PREFETCH_MS: int = 100
    """Work, in milliseconds, that a worker holds beyond its free threads."""
    MAX_ATTEMPTS: int = 10
    """Attempts of a job whose handler and call do not say otherwise; the first run counts."""
    TIMEOUT: float | None = field(default=300.0, metadata=_duration(none=True))
    """How long a handler may run; None: for ever."""
    TIMEOUT_GRACE: float = field(default=5.0, metadata=_duration())
    """How long a handler that was told to stop may take."""
    BACKOFF: Exponential = field(default_factory=Exponential)
    """Waiting time between attempts: ``{"base": seconds, "cap": seconds, "jitter": seconds}``."""
    MAX_PAYLOAD_BYTES: int = 1024 * 1024
    """Largest payload and largest stored result, in bytes of JSON."""
    NOTIFY: bool = True
    """Whether enqueueing wakes workers by NOTIFY; off, a job is picked up by the next poll."""
    RETENTION: Mapping[str, dt.timedelta | None] = field(default_factory=lambda: _retention({}))
    """How long a finished job is kept, by status; None: for ever; 0: not at all."""
    TICK_RETENTION: float = field(default=7 * 86_400.0, metadata=_duration())
    """How long a tick of a schedule is kept; longer while its job is. At least two days."""
    PROJECT: str = ""
    """Whose schedules the code declares, when several projects share one queue: each retires only its own."""
    QUEUES: tuple[str, ...] | None = None
    """The queues that exist; enqueueing into another is an error. None: any."""
    TRIGGER_SECRET: str | None = field(default=None, repr=False)
    """The bearer secret of ``pgjobs.urls``, 16 to 255 visible ASCII characters. None: every call there is refused."""

    @property
    def watchdog(self) -> float:
        """WATCHDOG, or its default."""
        return 0.8 * self.LEASE if self.WATCHDOG is None else self.WATCHDOG

    def effective(self) -> dict[str, object]:
        """Every setting by name, for printing; a secret only as whether there is one."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return values | {"TRIGGER_SECRET": None if self.TRIGGER_SECRET is None else "(set)"}


FIELDS = {f.name: f for f in dataclasses.fields(Settings)}


@cache
def get_settings() -> Settings:
    """The settings in force. Raises ConfigurationError, naming every problem, when they cannot work."""
    settings, problems = read(getattr(django_settings, "PGJOBS", {}), os.environ)
    if problems:
        raise ConfigurationError("PGJOBS settings: " + " ".join(problems))
    return settings


def read(given: object, environ: Mapping[str, str]) -> tuple[Settings, list[str]]:
    """Settings from a ``PGJOBS`` dict and an environment, and a sentence for each problem found."""
    problems: list[str] = []
    if not isinstance(given, Mapping):
        return Settings(), [f"PGJOBS has to be a dict, not {type(given).__name__}."]
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in FIELDS:
            close = difflib.get_close_matches(str(name).upper(), FIELDS, n=1)
            problems.append(f"{name!r} is not a setting" + (f"; did you mean {close[0]!r}?" if close else "."))
        else:
            values[name] = value
    for name in FIELDS:
        if (text := environ.get(f"PGJOBS_{name}")) is not None:
            values[name] = text if name == "TRIGGER_SECRET" else _from_environment(text)
    clean: dict[str, Any] = {}
    for name, value in values.items():
        try:
            clean[name] = _convert(FIELDS[name], value)
        except ValueError as e:
            problems.append(f"{name}: {e}.")
    settings = Settings(**clean)
    return settings, problems or contradictions(settings)


def contradictions(s: Settings) -> list[str]:
    """A sentence for each pair of settings that cannot work together."""
    found = []
    if s.HEARTBEAT * 3 > s.LEASE * 1.0001:
        found.append(
            f"HEARTBEAT ({s.HEARTBEAT:g} s) has to be at most a third of LEASE ({s.LEASE:g} s): "
            "one lost beat must not lose a job."
        )
    if s.watchdog >= s.LEASE:
        found.append(
            f"WATCHDOG ({s.watchdog:g} s) has to be shorter than LEASE ({s.LEASE:g} s): "
            "a frozen process must be gone before its jobs run elsewhere."
        )
    if s.TICK_RETENTION < 2 * 86_400:
        found.append(f"TICK_RETENTION ({s.TICK_RETENTION:g} s) has to be at least two days (172800 s).")
    if s.watchdog <= s.HEARTBEAT:
        found.append(f"WATCHDOG ({s.watchdog:g} s) has to be longer than HEARTBEAT ({s.HEARTBEAT:g} s).")
    return found


def _from_environment(text: str) -> object:
    """JSON where it is JSON (numbers, true, null, lists, objects), else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _convert(f: dataclasses.Field[Any], value: object) -> object:
    if f.name in CONVERTERS:
        return CONVERTERS[f.name](value)
    if f.metadata.get("duration"):
        return _seconds(value, zero=f.metadata["zero"], none=f.metadata["none"])
    if f.type == "bool":
        if not isinstance(value, bool):
            raise ValueError(f"has to be True or False, not {value!r}")
        return value
    if f.type == "str":
        if not isinstance(value, str) or not (value or f.default == ""):
            raise ValueError(f"has to be a text, not {value!r}")
        return value
    if isinstance(value, bool) or not isinstance(value, int) or value < (0 if f.name == "PREFETCH_MS" else 1):
        raise ValueError(f"has to be a whole number above zero, not {value!r}")
    return value


def _seconds(value: object, *, zero: bool, none: bool) -> float | None:
    if value is None and none:
        return None
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"has to be seconds or a timedelta, not {value!r}")
    if not (0 <= value if zero else 0 < value) or value > 1e9:
        raise ValueError(f"has to be {'zero or more' if zero else 'above zero'} seconds, not {value!r}")
    return float(value)


def _backoff(value: object) -> Exponential:
    if isinstance(value, Exponential):
        return value
    if not isinstance(value, Mapping) or (unknown := set(value) - {"base", "cap", "jitter"}):
        extra = f" (unknown: {', '.join(sorted(map(str, unknown)))})" if isinstance(value, Mapping) else ""
        raise ValueError('has to be {"base": seconds, "cap": seconds, "jitter": seconds}' + extra)
    return Exponential(**{key: _seconds(v, zero=True, none=False) or 0.0 for key, v in value.items()})


def _retention(value: object) -> Mapping[str, dt.timedelta | None]:
    if not isinstance(value, Mapping):
        raise ValueError("has to be a dict of status → age")
    kept = RETENTION | dict(value)
    if unknown := set(kept) - set(RETENTION):
        raise ValueError(f"knows no status {sorted(map(str, unknown))}; final ones are {sorted(RETENTION)}")
    return {status: _age(status, age) for status, age in kept.items()}


def _age(status: str, age: object) -> dt.timedelta | None:
    """A timedelta, seconds, or a text of a number and a unit ("7 days", "12 hours")."""
    units = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800}
    if isinstance(age, str):
        number, _, unit = age.strip().partition(" ")
        if unit.strip().rstrip("s") not in units or not number.isdecimal():
            raise ValueError(f"{status}: {age!r} is no age like '7 days' or '12 hours'")
        age = int(number) * units[unit.strip().rstrip("s")]
    seconds = _seconds(age, zero=True, none=True)
    return None if seconds is None else dt.timedelta(seconds=seconds)


def _queues(value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if (
        isinstance(value, str)
        or not isinstance(value, (list, tuple, set, frozenset))
        or not all(isinstance(q, str) and q for q in value)
    ):
        raise ValueError("has to be a list of queue names, or None")
    return tuple(value)


def _secret(value: object) -> str | None:
    """Never quoted in a message. Short ones can be guessed; others do not survive a header."""
    if value is None:
        return None
    if not isinstance(value, str) or not 16 <= len(value) <= 255 or not all("!" <= c <= "~" for c in value):
        raise ValueError(
            "has to be a text of 16 to 255 visible ASCII characters without spaces, such as "
            "`python -c 'import secrets; print(secrets.token_urlsafe(32))'` prints, or None"
        )
    return value


CONVERTERS: dict[str, Callable[[object], object]] = {
    "BACKOFF": _backoff,
    "RETENTION": _retention,
    "QUEUES": _queues,
    "TRIGGER_SECRET": _secret,
}


def _forget(*, setting: str, **_: object) -> None:
    if setting == "PGJOBS":
        get_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="pgjobs.conf")
