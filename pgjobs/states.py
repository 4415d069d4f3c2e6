"""The six statuses of a job, and which of them are final."""

from __future__ import annotations

from typing import Final

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class Status(TextChoices):
    """Where a job stands. A job that waits for its time or its next attempt is pending with a later ``run_after``."""

    PENDING = "pending", _("Pending")
    RESERVED = "reserved", _("Running")
    DONE = "done", _("Done")
    FAILED = "failed", _("Failed")
    DEAD = "dead", _("Dead")
    CANCELLED = "cancelled", _("Cancelled")


LIVE: Final = (Status.PENDING, Status.RESERVED)
"""Statuses that hold a dedupe key."""

FINAL: Final = (Status.DONE, Status.FAILED, Status.DEAD, Status.CANCELLED)
"""Statuses that a job leaves only by an operator's requeue."""

DEAD_LETTERS: Final = (Status.FAILED, Status.DEAD)
"""Jobs that will not run again by themselves and that somebody should look at."""


class AttemptOutcome(TextChoices):
    """How an attempt ended that did not end well (one row of ``pgjobs_attempt`` each)."""

    ERROR = "error", _("Raised an error")
    FAILED = "failed", _("Said it can never work")
    TIMEOUT = "timeout", _("Ran out of time")
    LOST = "lost", _("Worker lost")
    CRASHED = "crashed", _("Worker died")
    CANCELLED = "cancelled", _("Cancelled")
    INTERRUPTED = "interrupted", _("Interrupted by a stopping worker")
