"""What the page of one schedule shows beside its form, as plain values."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.db import connections
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import store
from ..api.registry import registry
from ..models import Schedule, Tick
from ..schedules import overview
from ..states import Status
from .wording import relative, span, visible

COMING = 5
TICKS = 10
LABELS = {
    "on": ("done", gettext_lazy("On")),
    "paused": ("cancelled", gettext_lazy("Paused")),
    "retired": ("cancelled", gettext_lazy("Retired")),
    "failing": ("dead", gettext_lazy("Failing")),
}
"""Class of the badge, and what it says."""


@dataclass(frozen=True, slots=True)
class Coming:
    """One of the next times: by the schedule's clocks, by the viewer's, and how far away."""

    at: dt.datetime
    there: str
    here: str
    distance: str


@dataclass(frozen=True, slots=True)
class TickShown:
    """One tick. ``late`` is how long after its nominal time it was written; ``status`` that of its job, "" when gone."""

    there: str
    here: str
    distance: str
    late: str
    outcome: str
    job_id: int | None
    status: str
    status_label: str


@dataclass(frozen=True, slots=True)
class SchedulePage:
    """One schedule for a reader."""

    state: str
    badge: str
    label: str
    words: str
    zone: str
    viewers_zone: str
    same_clocks: bool
    notes: list[str]
    error: str
    retry: str
    coming: list[Coming]
    ticks: list[TickShown]
    more_ticks: bool


def read(schedule: Schedule, alias: str) -> SchedulePage:
    """The page of a schedule as it is stored in the database of that alias."""
    now = store.database_time(connections[alias])
    state = overview.state(schedule)
    badge, label = LABELS[state]
    times = overview.coming(schedule, now, COMING) if state in ("on", "failing") else []
    found = list(Tick._default_manager.using(alias).filter(schedule=schedule).order_by("-scheduled_for")[: TICKS + 1])
    viewer = timezone.get_current_timezone()
    return SchedulePage(
        state=state,
        badge=badge,
        label=str(label),
        words=visible(overview.in_words(schedule)),
        zone=visible(overview.zone_name(schedule)) if schedule.every is None else "",
        viewers_zone=timezone.get_current_timezone_name(),
        same_clocks=schedule.every is not None or _same_clocks(schedule, viewer, times or [now]),
        notes=_notes(schedule, now),
        error=visible(schedule.last_error),
        retry=relative(overview.utc(schedule.retry_at), now)
        if schedule.retry_at is not None and overview.utc(schedule.retry_at) > now
        else "",
        coming=[
            Coming(
                time,
                moment(overview.local(time, schedule) if schedule.every is None else time.astimezone(viewer)),
                moment(time.astimezone(viewer)),
                relative(time, now),
            )
            for time in times
        ],
        ticks=_ticks(schedule, found[:TICKS], alias, now),
        more_ticks=len(found) > TICKS,
    )


def moment(time: dt.datetime) -> str:
    """``Thu 3 Dec 2026, 02:00 EET``: by the clocks of the time's own zone."""
    shape = "D j M Y, H:i:s" if time.second else "D j M Y, H:i"
    return f"{date_format(time, shape)} {time.tzname() or ''}".strip()


def _same_clocks(schedule: Schedule, viewer: dt.tzinfo, times: list[dt.datetime]) -> bool:
    return all(overview.local(time, schedule).utcoffset() == time.astimezone(viewer).utcoffset() for time in times)


def _notes(schedule: Schedule, now: dt.datetime) -> list[str]:
    said = []
    if schedule.retired_at is not None:
        said.append(
            _("It left the code %(when)s and fires no more. Its ticks stay here.")
            % {"when": relative(overview.utc(schedule.retired_at), now)}
        )
    elif schedule.source == "code":
        said.append(_("The code says when and what. Here it can be paused; everything else is changed in the code."))
    if schedule.retired_at is None and not schedule.enabled:
        said.append(_("It is paused: nothing fires until it is enabled again, and nothing is caught up then."))
    if registry.find(schedule.kind) is None:
        said.append(
            _("No handler here is called “%(kind)s”: other code has to run its jobs.") % {"kind": schedule.kind}
        )
    due = schedule.next_run_at
    if schedule.enabled and schedule.retired_at is None and due is not None:
        late = now - overview.utc(due)
        if late > dt.timedelta(seconds=5) and not schedule.errors:
            said.append(_("A tick is due since %(span)s: is a worker running?") % {"span": span(late)})
    if schedule.skipped:
        said.append(_("%(n)s ticks were skipped because an earlier job had not ended.") % {"n": schedule.skipped})
    return [visible(text) for text in said]


def _ticks(schedule: Schedule, found: list[Tick], alias: str, now: dt.datetime) -> list[TickShown]:
    viewer = timezone.get_current_timezone()
    shown = []
    for tick, fired in zip(found, overview.fired(found, alias), strict=True):
        late = overview.utc(tick.created_at) - fired.scheduled_for
        here = moment(fired.scheduled_for.astimezone(viewer))
        shown.append(
            TickShown(
                there=moment(overview.local(fired.scheduled_for, schedule)) if schedule.every is None else here,
                here=here,
                distance=relative(fired.scheduled_for, now),
                late=span(late, 1) if late > dt.timedelta(0) else "",
                outcome=str(tick.get_outcome_display()),
                job_id=fired.job_id,
                status=fired.status or "",
                status_label=status_label(fired.status),
            )
        )
    return shown


def status_label(status: str | None) -> str:
    """What a job's badge says; a job that is gone has none."""
    try:
        return str(Status(status).label) if status else ""
    except ValueError:  # of a newer release
        return status or ""
