"""Schedules for people: what they say in words, what they did last, what comes next. Nothing here raises for a bad row."""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings as django_settings
from django.db.models import OuterRef, Subquery
from django.utils import timezone

from ..models import Job, Schedule, Tick
from . import cron
from .rule import rule_of

UNITS = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


@dataclass(frozen=True, slots=True)
class Fired:
    """One tick: its nominal time (aware, UTC), its outcome, its job, and the job's status; None when the job is gone."""

    scheduled_for: dt.datetime
    outcome: str
    job_id: int | None
    status: str | None


def fired(ticks: Iterable[Tick], alias: str) -> list[Fired]:
    """The ticks, each with the status of its job."""
    found = list(ticks)
    ids = [tick.job_id for tick in found if tick.job_id is not None]
    statuses = dict(Job._default_manager.using(alias).filter(pk__in=ids).values_list("pk", "status"))
    return [
        Fired(
            utc(tick.scheduled_for),
            tick.outcome,
            tick.job_id,
            None if tick.job_id is None else statuses.get(tick.job_id),
        )
        for tick in found
    ]


def last_fired(schedules: Sequence[Schedule], alias: str) -> dict[int, Fired]:
    """The latest tick of each schedule that has one, by the schedule's id."""
    latest = Tick._default_manager.filter(schedule=OuterRef("pk")).order_by("-scheduled_for").values("pk")[:1]
    ids = (
        Schedule._default_manager.using(alias)
        .filter(pk__in=[schedule.pk for schedule in schedules])
        .values_list(Subquery(latest), flat=True)
    )
    ticks = list(Tick._default_manager.using(alias).filter(pk__in=[pk for pk in ids if pk is not None]))
    return dict(zip([tick.schedule_id for tick in ticks], fired(ticks, alias), strict=True))


def state(schedule: Schedule) -> str:
    """retired (it left the code), paused (somebody disabled it), failing (its last try met an error), or on."""
    if schedule.retired_at is not None:
        return "retired"
    if not schedule.enabled:
        return "paused"
    return "failing" if schedule.errors else "on"


def zone_name(schedule: Schedule) -> str:
    """The schedule's zone; a worker's, while it has none."""
    return schedule.timezone or django_settings.TIME_ZONE


def in_words(schedule: Schedule) -> str:
    """The rule as an English phrase, or the cron text itself when it cannot be read."""
    if schedule.every is not None:
        return every_in_words(schedule.every)
    try:
        return cron.in_words(schedule.cron)
    except ValueError:
        return schedule.cron


def every_in_words(every: dt.timedelta) -> str:
    """``Every 5 minutes``, ``Every hour``, ``Every 90 seconds``, ``Every 1.5 seconds``."""
    seconds = every.total_seconds()
    size, unit = next(((size, unit) for size, unit in UNITS if seconds >= size and not seconds % size), UNITS[-1])
    n = seconds / size
    return f"Every {unit}" if n == 1 else f"Every {n:,.6g} {unit}s"


def coming(schedule: Schedule, after: dt.datetime, n: int) -> list[dt.datetime]:
    """The next ``n`` times after ``after`` (aware), in UTC; fewer when there are none, or the rule cannot be read.

    The first one is the stored ``next_run_at`` while that lies ahead: a person may have set it by hand.
    """
    times: list[dt.datetime] = []
    if schedule.next_run_at is not None and (following := utc(schedule.next_run_at)) > after:
        times.append(following)
    try:
        rule = rule_of(schedule, django_settings.TIME_ZONE)
        while len(times) < n:
            times.append(rule.next(times[-1] if times else after))
    except ValueError:
        pass
    return times[:n]


def utc(moment: dt.datetime) -> dt.datetime:
    """A time as the ORM read it, in UTC: naive ones, without ``USE_TZ``, are in ``TIME_ZONE``."""
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment, timezone.get_default_timezone())
    return moment.astimezone(dt.UTC)


def local(moment: dt.datetime, schedule: Schedule) -> dt.datetime:
    """An aware time by the clocks of the schedule's zone; unchanged when that is not known here."""
    try:
        return moment.astimezone(zoneinfo.ZoneInfo(zone_name(schedule)))
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return moment
