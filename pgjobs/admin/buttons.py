"""Which moves a job's page offers now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from django.utils.translation import gettext as _

from ..models import Job
from .moves import MOVES, Move


@dataclass(frozen=True, slots=True)
class Button:
    """A form with one button; ``confirm`` asks once more before it is sent."""

    name: str
    label: str
    hint: str
    confirm: str = ""


def buttons(job: Job, now: dt.datetime, may: Callable[[str], bool]) -> list[Button]:
    """The moves that this job allows and that the user may ask for. Nothing is promised: the verb decides in the end."""
    return [_button(move, job) for move in MOVES.values() if _makes_sense(move, job, now) and may(move.permission)]


def _makes_sense(move: Move, job: Job, now: dt.datetime) -> bool:
    if job.status not in move.statuses:
        return False
    if move.name == "retry_now" and job.status == "pending":
        return job.run_after > now
    return not (move.name == "cancel" and job.cancel_requested_at is not None)


def _button(move: Move, job: Job) -> Button:
    label, hint = str(move.label), str(move.hint)
    if move.name == "retry_now" and job.status == "pending":
        hint = _("It is brought forward: due at once.")
        label = label if job.attempts else _("Run now")
    elif move.name == "retry_now" and job.status in ("done", "cancelled"):
        label = _("Run again")
    elif move.name == "cancel" and job.status == "reserved":
        label = _("Ask to stop")
    elif move.name == "prune":
        return Button(move.name, _("Delete"), hint, _("Yes, delete it for good"))
    return Button(move.name, label, hint)
