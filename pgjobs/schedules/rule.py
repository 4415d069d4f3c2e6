"""When a schedule is due: by cron in a zone, or by an interval. And which of the ticks that are due are fired."""

from __future__ import annotations

import datetime as dt
from collections import deque
from dataclasses import dataclass
from typing import Any

from . import cron

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
"""Intervals are counted from here, so that all workers agree on each nominal time, and a restart moves none."""

INSTANT = dt.timedelta(microseconds=1)

TOLERANCE = dt.timedelta(minutes=1)
"""With misfire ``skip``, a tick that is later than this was missed; ``max_lateness`` gives another limit."""

MOST = 100
"""With misfire ``all``, so many ticks are made up for at most: the last ones."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A cron expression in a zone, or an interval. All times are aware, and come out in UTC."""

    cron: str
    every: dt.timedelta | None
    timezone: str

    def next(self, after: dt.datetime) -> dt.datetime:
        """The first time strictly later. Raises ValueError for what cannot be read, and when there is none."""
        if self.every is None:
            return cron.next_time(self.cron, self.timezone, after)
        try:
            return EPOCH + ((after - EPOCH) // self.every + 1) * self.every
        except (OverflowError, ZeroDivisionError):
            raise ValueError(f"every {self.every}: there is no time after {after}.") from None

    def last(self, after: dt.datetime, until: dt.datetime) -> dt.datetime | None:
        """The last time later than ``after`` and not later than ``until``, however many lie between; or None."""
        if self.every is None:
            return cron.last_time(self.cron, self.timezone, after, until)
        time = EPOCH + ((until - EPOCH) // self.every) * self.every
        return time if time > after else None

    def latest(self, after: dt.datetime, until: dt.datetime, most: int) -> list[dt.datetime]:
        """The last ``most`` of those times, ascending. Looks back twice as far each time, so that few are computed."""
        window = dt.timedelta(minutes=1)
        while True:
            start = max(after, until - window) if window < until - after else after
            found: deque[dt.datetime] = deque(maxlen=most)
            time = self.next(start)
            while time <= until:
                found.append(time)
                time = self.next(time)
            if len(found) == most or start == after:
                return list(found)
            window *= 2


@dataclass(frozen=True, slots=True)
class Decision:
    """``times`` are fired; ``missed`` is the last one that is left out, if any; ``following`` is the next one."""

    times: list[dt.datetime]
    missed: dt.datetime | None
    following: dt.datetime


def decide(
    rule: Rule,
    *,
    misfire: str,
    max_lateness: dt.timedelta | None,
    due: dt.datetime,
    now: dt.datetime,
    last_tick_at: dt.datetime | None = None,
) -> Decision:
    """Which ticks to fire of a schedule whose time ``due`` has come, by the database's ``now``.

    ``due`` itself counts as a time whether or not the rule names it: somebody may have set it by hand.
    """
    following = rule.next(max(now, due, last_tick_at or now))
    limit = max_lateness if max_lateness is not None else TOLERANCE if misfire == "skip" else None
    if misfire == "all":
        times = rule.latest(due, now, MOST)
        if len(times) < MOST:
            times.insert(0, due)
    else:
        times = [rule.last(due, now) or due]
    left_out = rule.last(due - INSTANT, times[0] - INSTANT) if misfire == "all" and times[0] > due else None
    late = [time for time in times if limit is not None and now - time > limit]
    missed = late[-1] if late else left_out
    return Decision(times[len(late) :], missed, following)


def rule_of(row: Any, zone: str) -> Rule:
    """The rule of a row; ``zone`` is for one that names none."""
    return Rule(row.cron, row.every, row.timezone or zone)
