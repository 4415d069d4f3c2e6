"""What is going on with a job, and what happens next, in sentences."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from ..states import Status
from .facts import Facts, obstacles
from .wording import clock, span, visible, words


@dataclass(frozen=True, slots=True)
class Story:
    """A headline, what happens next, and what else the reader should know. ``tone``: ok, busy, wait, bad or off."""

    tone: str
    headline: str
    next: str
    notes: list[str] = field(default_factory=list)


def tell(facts: Facts) -> Story:
    """The story of a job as it stands."""
    story = TELLERS[Status(facts.job.status)](facts)
    story.notes.extend(_notes(facts))
    return story


def _pending(facts: Facts) -> Story:
    job, now = facts.job, facts.now
    due = job.run_after <= now
    how_far = {"span": words(job.run_after - now), "clock": clock(job.run_after, now)}
    if job.attempts:
        headline = _("Failed %(tries)s.") % {"tries": facts.tries}
        then = _("The next one is due in %(span)s, at %(clock)s, unless somebody cancels it.") % how_far
        if due:
            then = _("The next one has been due for %(span)s and starts as soon as a worker takes it.") % how_far
    elif job.snoozes and not due:
        headline = _("Snoozed by its handler.")
        then = _("It runs again in %(span)s, at %(clock)s.") % how_far
    elif not due:
        headline = _("Waiting for its time.")
        then = _("The first run is due in %(span)s, at %(clock)s, unless somebody cancels it.") % how_far
    else:
        headline = _("Waiting in queue “%(queue)s” for a worker.") % {"queue": visible(job.queue)}
        then = _("It has been due for %(span)s and starts as soon as a worker takes it.") % how_far
    if job.expires_at is not None and job.expires_at <= now:
        return Story("wait", headline, _("It has expired: a worker's housekeeping cancels it within moments."))
    found = list(obstacles(facts))
    tone = "bad" if found and not facts.pauses else "wait"
    if not found or not due:
        return Story(tone, headline, then, found)
    return Story(tone, f"{headline} {found[0]}", _("It has been due for %(span)s.") % how_far, found[1:])


def _reserved(facts: Facts) -> Story:
    job, now = facts.job, facts.now
    worker = visible(job.reserved_by or "")
    ends_dead = job.attempts >= job.max_attempts
    if job.reserved_until is not None and job.reserved_until < now:
        headline = _("Worker %(worker)s has gone silent: its lease lapsed %(span)s ago.") % {
            "worker": worker,
            "span": words(now - job.reserved_until),
        }
        then = _("Any live worker returns the job to its queue within moments.")
        if job.cancel_requested_at:
            then = _("Any live worker ends the job as cancelled within moments, as somebody asked.")
        elif ends_dead:
            then = _("No attempt is left: any live worker moves it to the dead letters within moments.")
        if not facts.workers:
            then += " " + _("But no worker is alive. Start one with “manage.py run_jobs”.")
        return Story("bad", headline, then)
    since = job.last_attempted_at or job.reserved_at or now
    headline = _("Running on worker %(worker)s for %(span)s, attempt %(n)d of %(most)d.") % {
        "worker": worker,
        "span": words(now - since),
        "n": job.attempts,
        "most": job.max_attempts,
    }
    if job.cancel_requested_at:
        return Story(
            "busy",
            headline,
            _(
                "Somebody asked to cancel it %(span)s ago. The worker hears of it with its next heartbeat (every %(beat)s). If "
                "the run fails or asks for another, the job ends as cancelled; if it returns normally, as done."
            )
            % {
                "span": words(now - job.cancel_requested_at),
                "beat": span(dt.timedelta(seconds=facts.settings.HEARTBEAT)),
            },
        )
    then = ""
    if job.reserved_until is not None:
        then = _("Its lease holds until %(clock)s; the worker extends it while it lives.") % {
            "clock": clock(job.reserved_until, now)
        }
    if job.timeout is not None:
        left = since + job.timeout - now
        then += " " + (
            _("Its time limit is reached in %(span)s.") % {"span": words(left)}
            if left > dt.timedelta(0)
            else _("It is %(span)s past its time limit and is being stopped.") % {"span": words(left)}
        )
    then += " " + (
        _("This is its last attempt: should it fail, the job becomes a dead letter.")
        if ends_dead
        else _("Should it fail, it is tried again.")
    )
    return Story("busy", headline, then.strip())


def _done(facts: Facts) -> Story:
    job = facts.job
    said = [_("Done %(span)s ago, on attempt %(n)d") % {"span": _since_end(facts), "n": job.attempts}]
    if job.finished_at and job.last_attempted_at:
        said.append(_("after %(span)s") % {"span": span(job.finished_at - job.last_attempted_at)})
    return Story("ok", ", ".join(said) + ".", _("Nothing more happens."))


def _failed(facts: Facts) -> Story:
    return Story(
        "bad",
        _(
            "Failed for good %(span)s ago: another attempt would be no use, said its handler or the check of its payload."
        )
        % {"span": _since_end(facts)},
        _("Nothing happens by itself; retry it once the cause is mended."),
    )


def _dead(facts: Facts) -> Story:
    job = facts.job
    last = facts.last_error.strip().splitlines()[-1:] or [""]
    if last[0].startswith("buried"):
        headline = _("Dead for %(span)s: moved to the dead letters (%(note)s) after %(tries)s.")
    elif job.attempts >= job.max_attempts:
        headline = _("Dead for %(span)s: no attempt is left, all %(most)d were used.")
    else:
        headline = _("Dead for %(span)s, after %(tries)s.")
    return Story(
        "bad",
        headline % {"span": _since_end(facts), "note": last[0], "tries": facts.tries, "most": job.attempts},
        _("Nothing happens by itself; retry it once the cause is mended."),
    )


def _cancelled(facts: Facts) -> Story:
    note = facts.last_error.strip().splitlines()[:1] or [""]
    if note[0] == "expired":
        headline = _("Expired %(span)s ago, before a worker took it.")
    elif note[0].startswith("cancelled by "):
        headline = _("Cancelled %(span)s ago by %(who)s.")
    else:
        headline = _("Cancelled %(span)s ago.")
    who = note[0].removeprefix("cancelled by ")
    return Story("off", headline % {"span": _since_end(facts), "who": who}, _("Nothing more happens."))


TELLERS: dict[Status, Callable[[Facts], Story]] = {
    Status.PENDING: _pending,
    Status.RESERVED: _reserved,
    Status.DONE: _done,
    Status.FAILED: _failed,
    Status.DEAD: _dead,
    Status.CANCELLED: _cancelled,
}


def _since_end(facts: Facts) -> str:
    ended = facts.job.finished_at
    return words(facts.now - ended) if ended is not None else ""


def _notes(facts: Facts) -> Iterator[str]:
    job, now = facts.job, facts.now
    live = job.finished_at is None
    if live and job.expires_at is not None and job.expires_at > now:
        yield _("It expires at %(clock)s: if no worker has taken it by then, it is cancelled.") % {
            "clock": clock(job.expires_at, now)
        }
    if facts.rerun_wished:
        yield _("It was enqueued again while it ran: once it ends, a new job with the latest payload takes its place.")
    if job.lost == 1:
        yield _("Its worker was lost in the latest attempt.")
    elif job.lost:
        yield _("Its worker was lost %(n)d times in a row. Does it use too much memory, or crash the process?") % {
            "n": job.lost
        }
    if live and job.suspect:
        yield _("It was running when its worker died and may be the cause, so it runs alone until it has ended.")
    if not facts.known_here:
        yield _(
            "This site has no handler of the kind “%(kind)s”. Either another service runs it, or the handler was renamed "
            "or removed (keep old names with aliases)."
        ) % {"kind": visible(job.kind)}
    age = facts.settings.RETENTION.get(job.status)
    if job.finished_at is not None and age is not None:
        yield _("It is kept until %(clock)s.") % {"clock": clock(job.finished_at + age, now)}
