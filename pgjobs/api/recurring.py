"""What code says about when a handler's job recurs. Whether a cron expression can be read is checked at start, not here."""

from __future__ import annotations

import dataclasses
import datetime as dt
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .. import payload as json_payload
from ..exceptions import Delay, PayloadTypeError, seconds

Misfire = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "queue_one"]
MakePayload = Callable[[], Mapping[str, Any]] | Callable[[dt.datetime], Mapping[str, Any]]

LONGEST_PAYLOAD = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One recurring rule of a handler: ``@job(schedules=[Schedule(cron="0 2 * * *"), Schedule(every=300)])``.

    Either ``cron`` (five fields or ``@daily`` and its like, read by the clocks of ``timezone``, an IANA name; left out, the
    TIME_ZONE of the worker that first stores the schedule) or ``every`` (seconds or a timedelta, at least one second; ticks
    are the multiples of it since 1970-01-01 00:00 UTC).

    ``misfire`` says what happens to ticks that came while no worker ran: ``once`` (the default) fires the last of them,
    ``skip`` none that is more than a minute late, ``all`` each of them, the last hundred at most. ``max_lateness`` (seconds
    or a timedelta) bounds how late a tick is fired at all.

    ``overlap`` says what happens to a tick whose schedule still has a job that has not ended (it runs, waits, or waits for its
    next attempt): ``allow`` (the default) enqueues another, ``skip`` does not, ``queue_one`` lets one wait until the running
    one has ended.

    ``payload`` is the job's payload, or a callable that makes it for each tick, in the worker; one with a parameter gets the
    tick's nominal time. Several workers may call it for one tick, and one result is used: it must have no effects.

    ``name`` is how the schedule is known, in the admin too: the kind, ``kind#2``, … unless given. One that is renamed is a
    new one.
    """

    cron: str | None = None
    every: Delay | None = None
    timezone: str | None = None
    misfire: Misfire = "once"
    overlap: Overlap = "allow"
    max_lateness: Delay | None = None
    payload: Mapping[str, Any] | MakePayload | None = None
    name: str | None = None

    def make_payload(self, scheduled_for: dt.datetime) -> Mapping[str, Any]:
        """The payload of a tick; whatever the callable raises."""
        if not callable(self.payload):
            return self.payload or {}
        made: Any = self.payload(scheduled_for) if _takes_time(self.payload) else self.payload()  # type: ignore[call-arg]
        if not isinstance(made, Mapping):
            raise PayloadTypeError(
                f"schedule_payload of {self.name!r} returned {type(made).__name__}; it has to return a dict."
            )
        return made

    @property
    def payload_from(self) -> str:
        """The full name of the callable, or empty."""
        if not callable(self.payload):
            return ""
        return f"{self.payload.__module__}.{getattr(self.payload, '__qualname__', type(self.payload).__qualname__)}"


def check_schedules(
    kind: str, declared: Iterable[Schedule], fits: Callable[[Mapping[str, Any]], None]
) -> tuple[Schedule, ...]:
    """The schedules of a handler, with names; raises ValueError for what cannot work. ``fits`` checks a payload."""
    checked: list[Schedule] = []
    for n, one in enumerate(declared, 1):
        if not isinstance(one, Schedule):
            raise ValueError(f"schedules takes pgjobs.schedules.Schedule(…), not {one!r}.")
        lateness = seconds(one.max_lateness, "max_lateness")
        named = dataclasses.replace(
            one,
            name=json_payload.check_text(one.name or (kind if n == 1 else f"{kind}#{n}"), "name of a schedule", 255),
            every=_every(one),
            max_lateness=lateness,
        )
        for option, value, known in (
            ("misfire", named.misfire, ("skip", "once", "all")),
            ("overlap", named.overlap, ("allow", "skip", "queue_one")),
        ):
            if value not in known:
                raise ValueError(f"{option} has to be one of {', '.join(known)}, not {value!r}.")
        if lateness is not None and lateness < 1e-6:  # what the database can tell from zero
            raise ValueError("max_lateness has to be above zero; None means no limit.")
        if named.payload is not None and not callable(named.payload) and not isinstance(named.payload, Mapping):
            raise ValueError(f"schedule_payload takes a dict or a callable that returns one, not {named.payload!r}.")
        if not callable(named.payload):
            fits(named.payload or {})
            json_payload.dumps(dict(named.payload or {}), LONGEST_PAYLOAD, "schedule_payload")
        checked.append(named)
    names = [one.name for one in checked]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"two schedules are called {min(map(str, twice))!r}.")
    return tuple(checked)


def _every(one: Schedule) -> float | None:
    if (one.cron is None) == (one.every is None):
        raise ValueError("a schedule takes either cron or every.")
    texts: tuple[tuple[str, Any, str], ...] = (
        ("cron", one.cron, "0 2 * * *"),
        ("timezone", one.timezone, "Europe/Kyiv"),
    )
    for option, given, example in texts:
        if given is not None and (not isinstance(given, str) or not given):
            raise ValueError(f"{option} takes a text like {example!r}, not {given!r}.")
    if one.every is None:
        return None
    interval = seconds(one.every, "every") or 0.0
    if interval < 1:
        raise ValueError(f"every has to be at least one second, not {interval:g}.")
    return round(interval, 6)


def _takes_time(function: Callable[..., Any]) -> bool:
    """Whether a callable has a parameter that it needs."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    return any(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)
