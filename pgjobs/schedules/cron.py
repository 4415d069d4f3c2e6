"""When a cron expression fires: five fields, or ``@hourly`` … ``@yearly``, read by the clocks of a time zone.

The library cronsim parses the fields and finds the matching readings of a wall clock; this module gives each reading its
instant. The rule is Debian cron's (docs/explanation/time-zones.md):

* *fixed* expressions, whose minute and hour both do not begin with ``*``: each reading fires once. One that a zone jumps
  over fires at the end of the jump; one that comes twice fires the first time.
* *wildcard* expressions fire whenever the wall clock shows a matching reading: never for one that is jumped over, twice for
  one that comes twice.

Whatever is returned is in UTC and strictly later than what was asked for. (cronsim could do this part too, but loses
readings where clocks jump by half an hour, and can answer with an earlier instant after a repeated hour.)
"""

from __future__ import annotations

import datetime as dt
import difflib
import re
import zoneinfo
from functools import lru_cache

from cronsim import CronSim, CronSimError
from cronsim.cronsim import Field

NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
FIELDS = {
    "minute": (Field.MINUTE, "0-59", 60),
    "hour": (Field.HOUR, "0-23", 24),
    "day of month": (Field.DAY, "1-31", 31),
    "month": (Field.MONTH, "1-12 or JAN-DEC", 12),
    "day of week": (Field.DOW, "0-7 or SUN-SAT (0 and 7 are Sunday)", 7),
}
LONGEST = 255
SAMPLE = dt.datetime(2000, 1, 1)  # noqa: DTZ001 - a wall clock; the calendar repeats within 28 years from then on
WINDOW = dt.timedelta(days=2)
"""Longer than any jump of a zone's clocks: the longest ones skipped, or repeated, a day."""
PROBE = dt.timedelta(hours=6)
"""Shorter than the time between any two jumps of a zone."""
SECOND = dt.timedelta(seconds=1)


def check(expression: str, timezone: str) -> None:
    """Raises ValueError, saying what is wrong, where and what to do, if the expression or the zone cannot be used.

    An expression that can never match, like ``0 0 30 2 *``, is refused as well.
    """
    _zone(timezone)
    _parse(expression)


def next_time(expression: str, timezone: str, after: dt.datetime) -> dt.datetime:
    """The first time strictly later than ``after`` (aware), in UTC.

    Raises ValueError for what :func:`check` refuses, a naive ``after``, and when no time follows within fifty years or
    before the year 10000.
    """
    fields, zone = _parse(expression), _zone(timezone)
    if after.tzinfo is None or after.utcoffset() is None:
        raise ValueError(f"after has to be an aware datetime, not {after!r}: which instant is meant?")
    find = _next_wildcard if _is_wildcard(fields) else _next_fixed
    try:
        found = find(fields, zone, after.astimezone(dt.UTC))
    except OverflowError:
        found = None
    if found is None:
        raise ValueError(f"cron {expression!r} has no time after {after.isoformat()} that could be found.")
    return found


def next_times(expression: str, timezone: str, after: dt.datetime, n: int) -> list[dt.datetime]:
    """The next ``n`` times (at most 10,000) of a cron expression in an IANA time zone, strictly later than ``after``.

    Args:
        expression: five fields, or ``@hourly``, ``@daily``, ``@weekly``, ``@monthly``, ``@yearly``.
        timezone: by whose clocks the fields are read, for example ``"Europe/Kyiv"``.
        after: an aware datetime, of any zone.
        n: how many.

    Returns: aware datetimes in UTC, strictly increasing. The last ones are missing if the calendar ends before.

    Raises: ValueError for an expression or a zone that cannot be used, a naive ``after``, and an ``n`` out of range.
    """
    if type(n) is not int or not 0 <= n <= 10_000:
        raise ValueError(f"n has to be a whole number from 0 to 10,000, not {n!r}")
    check(expression, timezone)
    times: list[dt.datetime] = []
    while len(times) < n:
        times.append(next_time(expression, timezone, times[-1] if times else after))
    return times


def last_time(expression: str, timezone: str, after: dt.datetime, until: dt.datetime) -> dt.datetime | None:
    """The latest time in (``after``, ``until``], or None; found by halving, however many lie between."""
    found = next_time(expression, timezone, after)
    if found > until:
        return None
    # Invariant: `found` is a time, at most `until`; the first time after `high` is beyond `until`.
    high = until.astimezone(dt.UTC)
    while high - found > SECOND:
        middle = found + (high - found) / 2
        following = next_time(expression, timezone, middle)
        if following <= until:
            found = following
        else:
            high = middle
    return found


def in_words(expression: str) -> str:
    """The expression as an English sentence without its full stop: ``At 02:00 every day``. Raises ValueError."""
    fields = _parse(expression)
    return CronSim(fields, SAMPLE).explain()


@lru_cache(maxsize=1024)
def _parse(expression: str) -> str:
    """The expression's five fields in capital letters, separated by single spaces. Raises ValueError."""
    what = f"cron {expression!r:.300}"
    if type(expression) is not str or len(expression) > LONGEST:
        raise ValueError(f"{what}: has to be a text of at most {LONGEST} characters.")
    text = expression.strip()
    if text.startswith("@"):
        if (fields := NICKNAMES.get(text.lower())) is None:
            hint = " There is no start to run at: jobs that are due run anyway." if text.lower() == "@reboot" else ""
            raise ValueError(f"{what}: {text} is not known; use one of {', '.join(NICKNAMES)}, or five fields.{hint}")
        return fields
    parts = text.upper().split()
    if len(parts) != 5:
        seconds = " Seconds do not exist here; for less than a minute, use an interval." if len(parts) == 6 else ""
        raise ValueError(
            f"{what}: has {len(parts)} fields; five are needed: minute, hour, day of month, month, day of week.{seconds}"
        )
    for part, (name, (field, allowed, size)) in zip(parts, FIELDS.items(), strict=True):
        _check_field(what, name, part, field, allowed, size)
    # cronsim takes 5-5/10 for 5/10, which runs to the end of the field.
    fields = re.sub(r"\b(\w+)-\1/\d+", r"\1", " ".join(parts))
    try:
        next(CronSim(fields, SAMPLE))
    except (CronSimError, StopIteration):
        raise ValueError(
            f"{what}: can never match: no such month has a day {parts[2]}. Correct the day of month or the month."
        ) from None
    return fields


def _check_field(what: str, name: str, part: str, field: Field, allowed: str, size: int) -> None:
    where = f"{what}: {name} {part!r}"
    if unknown := re.search(r"[?#LW]", re.sub(r"JUL|WED", "", part)):
        raise ValueError(
            f"{where}: {unknown[0]!r} is not supported; write numbers ({allowed}), *, lists, ranges, steps."
        )
    try:
        field.parse(part)
    except (CronSimError, AssertionError):
        hint = "; a range that ends on Sunday ends with 7, as in 5-7" if re.search(r"-(SUN|0)\b", part) else ""
        raise ValueError(
            f"{where}: cannot be read; write {allowed}, *, lists (1,2), ranges from low to high (1-5) or steps (*/5){hint}."
        ) from None
    for step in re.findall(r"/(\d+)", part):
        if int(step) > size:
            raise ValueError(
                f"{where}: a step of {step} is longer than the field ({allowed}), so it means something else."
            )


@lru_cache(maxsize=1024)
def _zone(timezone: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(timezone)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError, TypeError, AttributeError):
        names = zoneinfo.available_timezones()
    if not names:
        raise ValueError(f"timezone {timezone!r}: this system knows no zones; install the package tzdata.")
    regions = {name.lower(): name for name in names if "/" in name or name == "UTC"}
    close = difflib.get_close_matches(str(timezone).lower(), regions, n=1)
    hint = f"Did you mean {regions[close[0]]!r}?" if close else "Use an IANA name like 'Europe/Kyiv'."
    raise ValueError(f"timezone {timezone!r} is not known. {hint}")


def _is_wildcard(fields: str) -> bool:
    """As Debian's cron decides: the minute or the hour begins with a star."""
    minute, hour, *_ = fields.split()
    return minute.startswith("*") or hour.startswith("*")


def _next_fixed(fields: str, zone: dt.tzinfo, after: dt.datetime) -> dt.datetime | None:
    for wall in CronSim(fields, _wall(zone, after)):
        if (instant := _first_instant(zone, wall)) > after:
            return instant  # not so for a reading that was shown before clocks went back
    return None


def _first_instant(zone: dt.tzinfo, wall: dt.datetime) -> dt.datetime:
    """When clocks show this the first time; if they never do, the end of the jump."""
    local = wall.replace(tzinfo=zone, fold=0)
    instant = local.astimezone(dt.UTC)
    jumped = _wall(zone, instant) - wall
    if not jumped:
        return instant
    return _change(zone, instant - jumped, instant) or instant


def _next_wildcard(fields: str, zone: dt.tzinfo, after: dt.datetime) -> dt.datetime | None:
    """Walks from one change of the zone's offset to the next: between two, wall clocks run evenly."""
    at, wall = after, _wall(zone, after)
    while True:
        match = next(CronSim(fields, wall), None)
        if match is None:
            return None
        change = _change(zone, at, at + WINDOW)
        instant = match.replace(tzinfo=dt.UTC) - _offset(zone, at)
        if change and instant >= change:
            at, wall = change, _wall(zone, change) - SECOND  # what clocks show at the change itself counts
        elif not change and match - wall > WINDOW:  # far away: nothing matches up to two days before it
            at = (match - WINDOW).replace(tzinfo=zone).astimezone(dt.UTC)
            wall = _wall(zone, at)
        else:
            return instant


def _change(zone: dt.tzinfo, low: dt.datetime, end: dt.datetime) -> dt.datetime | None:
    """The first instant in (``low``, ``end``] from which on the zone's offset is another one than at ``low``."""
    low = low.replace(microsecond=0)  # offsets change at whole seconds
    offset = _offset(zone, low)
    high = low
    while _offset(zone, high) == offset:
        if high >= end:
            return None
        low, high = high, min(high + PROBE, end)
    while high - low > SECOND:
        middle = low + ((high - low) / 2 // SECOND) * SECOND
        if _offset(zone, middle) == offset:
            low = middle
        else:
            high = middle
    return high


def _offset(zone: dt.tzinfo, instant: dt.datetime) -> dt.timedelta:
    return instant.astimezone(zone).utcoffset() or dt.timedelta(0)


def _wall(zone: dt.tzinfo, instant: dt.datetime) -> dt.datetime:
    """What the zone's clocks show, as a naive datetime."""
    return instant.astimezone(zone).replace(tzinfo=None, fold=0)
