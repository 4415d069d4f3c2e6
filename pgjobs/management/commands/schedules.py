"""``manage.py schedules``: each schedule with its zone, its next time and its last outcome."""

from __future__ import annotations

import datetime as dt
import json
import unicodedata
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError, ProgrammingError, connections

from ... import store
from ...conf import get_settings
from ...exceptions import ConfigurationError
from ...models import Schedule
from ...schedules import overview
from ...schedules.overview import Fired

HEADINGS = ("SCHEDULE", "STATE", "WHEN", "ZONE", "NEXT", "LAST")


class Command(BaseCommand):
    """Read, print."""

    help = "List the schedules: when, in which zone, the next time, the last outcome."
    requires_system_checks: list[str] = []  # noqa: RUF012 - it only looks

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print an array of objects, times in UTC")
        parser.add_argument("--database", metavar="ALIAS", help="alias of the database (PGJOBS['DATABASE'])")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            alias = options["database"] or get_settings().DATABASE
            if alias not in connections.settings:
                raise ConfigurationError(
                    f"{alias!r} is no alias of DATABASES; there are {', '.join(connections.settings)}."
                )
            schedules = list(Schedule._default_manager.using(alias).order_by("name"))
            now = store.database_time(connections[alias])
            last = overview.last_fired(schedules, alias)
        except ConfigurationError as e:
            raise CommandError(str(e)) from None
        except (OperationalError, InterfaceError) as e:
            raise CommandError(f"the database cannot be reached: {str(e).strip()}") from None
        except ProgrammingError as e:
            raise CommandError(f"{str(e).strip().splitlines()[0]}. Is the database migrated?") from None
        if options["json"]:
            described = [_described(schedule, now, last.get(schedule.pk)) for schedule in schedules]
            self.stdout.write(json.dumps(described, indent=2, ensure_ascii=False))
        elif not schedules:
            self.stdout.write(
                "There are no schedules. Those of the code appear when a worker starts (manage.py run_jobs)."
            )
        else:
            for line in _table([HEADINGS, *(_row(schedule, now, last.get(schedule.pk)) for schedule in schedules)]):
                self.stdout.write(line)
            for schedule in schedules:
                if schedule.last_error:
                    self.stdout.write(f"\n{schedule.name}: {schedule.last_error}")


def _row(schedule: Schedule, now: dt.datetime, last: Fired | None) -> tuple[str, ...]:
    state = overview.state(schedule)
    times = overview.coming(schedule, now, 1) if state in ("on", "failing") else []
    following = _local(times[0], schedule) if times else "-"
    return (
        schedule.name,
        state,
        overview.in_words(schedule),
        overview.zone_name(schedule) if schedule.cron else "-",
        "due" if times and _is_due(schedule, now) else following,
        f"{_local(last.scheduled_for, schedule)} {_outcome(last)}" if last else "-",
    )


def _is_due(schedule: Schedule, now: dt.datetime) -> bool:
    return schedule.next_run_at is not None and overview.utc(schedule.next_run_at) <= now


def _outcome(last: Fired) -> str:
    """enqueued, and what became of the job; queued, skipped or missed."""
    if last.outcome != "enqueued":
        return last.outcome
    return last.status or "(job removed)"


def _local(moment: dt.datetime, schedule: Schedule) -> str:
    """By the schedule's clocks; with seconds only where they say something."""
    moment = overview.local(moment, schedule)
    return moment.strftime("%a %Y-%m-%d %H:%M:%S %z" if moment.second else "%a %Y-%m-%d %H:%M %z")


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns as wide as their widest cell; wide characters count as two, unseen ones not at all."""
    cells = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else not unicodedata.combining(c) for c in text)


def _described(schedule: Schedule, now: dt.datetime, last: Fired | None) -> dict[str, Any]:
    state = overview.state(schedule)
    times = overview.coming(schedule, now, 5) if state in ("on", "failing") else []
    return {
        "name": schedule.name,
        "kind": schedule.kind,
        "queue": schedule.queue,
        "state": state,
        "source": schedule.source,
        "cron": schedule.cron or None,
        "every": schedule.every.total_seconds() if schedule.every is not None else None,
        "words": overview.in_words(schedule),
        "timezone": overview.zone_name(schedule),
        "misfire": schedule.misfire,
        "overlap": schedule.overlap,
        "next": [_iso(time) for time in times],
        "due_since": _iso(overview.utc(schedule.next_run_at))
        if schedule.next_run_at is not None and times and _is_due(schedule, now)
        else None,
        "last": None
        if last is None
        else {
            "scheduled_for": _iso(last.scheduled_for),
            "outcome": last.outcome,
            "job": last.job_id,
            "status": last.status,
        },
        "skipped": schedule.skipped,
        "errors": schedule.errors,
        "last_error": schedule.last_error or None,
    }


def _iso(moment: dt.datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
