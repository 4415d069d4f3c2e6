"""Everything that the page of one job shows, as plain values: read once, masked, and put in words."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.conf import settings as django_settings
from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast, Now
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _

from ..api.registry import registry
from ..conf import Settings, get_settings
from ..models import Attempt, Job, Pause, Rerun, Schedule, Worker
from ..states import LIVE, AttemptOutcome
from .facts import Facts, paused
from .masking import UNREADABLE, Masker, parse
from .story import Story, tell
from .wording import first_line, full, relative, span, visible, without_class

MOST_ATTEMPTS = 25
"""Attempts that are shown, the latest."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One entry of the timeline."""

    at: dt.datetime
    exactly: str
    distance: str
    text: str
    tone: str = ""


@dataclass(frozen=True, slots=True)
class AttemptShown:
    """One attempt that did not end well. ``error``, ``traceback`` and ``log`` are empty for who may not see payloads."""

    number: int
    outcome: str
    when: str
    distance: str
    took: str
    worker: str
    error_class: str
    headline: str
    error: str
    traceback: str
    log: str


@dataclass(frozen=True, slots=True)
class Detail:
    """One job for a reader."""

    job: Job
    now: dt.datetime
    story: Story
    error_class: str
    error_headline: str
    error: str
    payload: str
    result: str
    meta: str
    progress: dict[str, Any] | None
    attempts: list[AttemptShown]
    more_attempts: bool
    timeline: list[Moment]
    facts: list[tuple[str, str]]


def read(queryset: QuerySet[Job], job: Job, *, secrets_allowed: bool) -> Detail | None:
    """The details of a job; None when it is gone. Without ``secrets_allowed`` what may tell of the payload is left out.

    Exceptions quote what they choke on, so tracebacks, logs and all but the first line of an error go with the payload;
    the class and the first line, masked, are for everybody who may see jobs.
    """
    settings, alias = get_settings(), queryset.db
    documents = [Cast(name, TextField()) for name in ("payload", "result", "meta", "progress")]
    heavy = queryset.filter(pk=job.pk).values_list("last_error", Now(), *documents).first()
    if heavy is None:
        return None
    last_error, now = heavy[:2]
    payload, result, meta, progress = map(parse, heavy[2:])
    handler = registry.find(job.kind)
    masker = Masker([payload, meta, result], handler.sensitive if handler else ())
    if UNREADABLE in (payload, meta, result):  # then nobody knows its secrets either
        secrets_allowed = False
    error = masker.text(last_error or "")
    found = list(Attempt.objects.using(alias).filter(job_id=job.pk).order_by("-id")[: MOST_ATTEMPTS + 1])
    attempts = found[:MOST_ATTEMPTS]
    facts = Facts(
        job=job,
        now=now,
        settings=settings,
        last_error=error,
        pauses=_pauses(settings, now, job),
        workers=live_workers(settings, now),
        known_here=handler is not None,
        rerun_wished=job.status in LIVE
        and job.dedupe_key is not None
        and Rerun.objects.using(alias).filter(kind=job.kind, dedupe_key=job.dedupe_key).exists(),
    )
    return Detail(
        job=job,
        now=now,
        story=tell(facts),
        error_class=masker.text(job.error_class or ""),
        error_headline=without_class(first_line(error), job.error_class or ""),
        error=error if secrets_allowed else "",
        payload=masker.document(payload) if secrets_allowed else "",
        result=masker.document(result) if secrets_allowed and result is not None else "",
        meta=masker.document(meta) if secrets_allowed and meta is not None else "",
        progress=_progress(progress, masker),
        attempts=[_shown(attempt, masker, now, secrets_allowed) for attempt in attempts],
        more_attempts=len(found) > MOST_ATTEMPTS,
        timeline=sorted(_timeline(job, attempts, now), key=lambda moment: moment.at),
        facts=list(_facts(job, masker)),
    )


def surroundings(settings: Settings) -> list[str]:
    """What a reader of any list should know first: nobody works, or something is paused."""
    now = timezone.now() if django_settings.USE_TZ else dt.datetime.now()  # noqa: DTZ005 - as Django reads times then
    said = (
        []
        if live_workers(settings, now)
        else [_("No worker is alive: nothing runs. Start one with “manage.py run_jobs”.")]
    )
    return said + [paused(pause, now) for pause in _pauses(settings, now)]


def live_workers(settings: Settings, now: dt.datetime) -> list[Worker]:
    """Workers that beat lately and are not stopping."""
    recent = now - dt.timedelta(seconds=2 * settings.LEASE)
    return list(Worker.objects.using(settings.DATABASE).filter(beat_at__gte=recent, stopping=False))


def _pauses(settings: Settings, now: dt.datetime, job: Job | None = None) -> list[Pause]:
    """Pauses that hold at ``now``; those that hold a job back, if one is given."""
    found = Pause.objects.using(settings.DATABASE).filter(Q(until__isnull=True) | Q(until__gt=now))
    if job is not None:
        found = found.filter(Q(scope="queue", name=job.queue) | Q(scope="kind", name=job.kind))
    return list(found.order_by("-scope", "name"))


def _progress(progress: Any, masker: Masker) -> dict[str, Any] | None:
    """``done``, ``total`` and ``text`` of what a handler said, in whatever shape it stands there."""
    if not isinstance(progress, dict):
        return None
    done, total = (n if isinstance(n, (int, float)) else None for n in map(progress.get, ("done", "total")))
    percent = round(100 * min(max(done / total, 0), 1)) if done is not None and total else None
    return {"done": done, "total": total, "percent": percent, "text": masker.text(str(progress.get("text") or ""))}


def _shown(attempt: Attempt, masker: Masker, now: dt.datetime, secrets_allowed: bool) -> AttemptShown:
    error = masker.text(attempt.error)
    return AttemptShown(
        number=attempt.attempt,
        outcome=_outcome(attempt),
        when=full(attempt.finished_at),
        distance=relative(attempt.finished_at, now),
        took=_took(attempt),
        worker=visible(attempt.worker),
        error_class=masker.text(attempt.error_class),
        headline=without_class(first_line(error), attempt.error_class),
        error=error if secrets_allowed and error.strip() != first_line(error) else "",
        traceback=masker.text(attempt.traceback) if secrets_allowed else "",
        log=masker.text(attempt.log) if secrets_allowed else "",
    )


def _outcome(attempt: Attempt) -> str:
    try:
        return str(AttemptOutcome(attempt.outcome).label)
    except ValueError:  # of a newer release
        return visible(attempt.outcome)


def _took(attempt: Attempt) -> str:
    return span(attempt.finished_at - attempt.started_at) if attempt.started_at else ""


def _timeline(job: Job, attempts: Sequence[Attempt], now: dt.datetime) -> Iterator[Moment]:
    def moment(at: dt.datetime | None, text: str, tone: str = "") -> Iterator[Moment]:
        if at is not None:
            yield Moment(at, full(at), relative(at, now), text, tone or ("future" if at > now else ""))

    yield from moment(job.scheduled_for, _("Nominal time of its schedule"))
    yield from moment(job.created_at, _("Created"))
    yield from moment(job.started_at, _("First started"))
    for attempt in attempts:
        text = _("Attempt %(n)d: %(outcome)s") % {"n": attempt.attempt, "outcome": _outcome(attempt)}
        if took := _took(attempt):
            text += " " + _("after %(span)s") % {"span": took}
        yield from moment(attempt.finished_at, text, "bad")
    if job.last_attempted_at != job.started_at:
        yield from moment(job.last_attempted_at, _("Last started"))
    yield from moment(job.cancel_requested_at, _("Somebody asked to cancel it"))
    if job.status == "pending":
        yield from moment(job.run_after, _("Due"))
        yield from moment(job.expires_at, _("Expires"))
    if job.status == "reserved":
        yield from moment(job.reserved_until, _("Its lease ends, unless extended"))
    yield from moment(
        job.finished_at, _("Finished: %(status)s") % {"status": job.get_status_display()}, f"is-{job.status}"
    )


def _facts(job: Job, masker: Masker) -> Iterator[tuple[str, str]]:
    yield _("Kind"), visible(job.kind)
    yield _("Queue"), visible(job.queue)
    yield _("Priority"), str(job.priority)
    yield _("Attempts"), _("%(n)d of %(most)d") % {"n": job.attempts, "most": job.max_attempts}
    yield _("Time limit"), span(job.timeout) if job.timeout is not None else _("none")
    if job.dedupe_key is not None:
        yield _("Dedupe key"), masker.text(job.dedupe_key)
    if job.worker:
        yield _("Last worker"), visible(job.worker)
    for name, n in ((_("Snoozes"), job.snoozes), (_("Attempts given back"), job.refunds)):
        if n:
            yield name, str(n)
    if job.schedule_id is not None:
        yield _("Schedule"), _schedule(job.schedule_id)


def _schedule(id_: int) -> str:
    """Its name, which leads to its page; the number of one that was deleted."""
    name = (
        Schedule._default_manager.using(get_settings().DATABASE).filter(pk=id_).values_list("name", flat=True).first()
    )
    if name is None:
        return f"#{id_}"
    return format_html('<a href="{}">{}</a>', reverse("admin:pgjobs_schedule_change", args=(id_,)), visible(name))
