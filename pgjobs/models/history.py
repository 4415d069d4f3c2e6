"""What happened: attempts that did not end well, and counts a minute."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Value
from django.utils.translation import gettext_lazy as _

from ..states import AttemptOutcome
from .fields import numbers
from .job import Job


class Attempt(models.Model):
    """One attempt that did not end well. Kept as long as its job; numbers repeat after refunds, ids do not."""

    id = models.BigAutoField(primary_key=True)
    # No constraint in the database: recording a failure must not depend on the row, and archived jobs keep their history.
    job = models.ForeignKey(Job, models.DO_NOTHING, related_name="history", db_constraint=False, db_index=False)
    attempt = models.IntegerField(_("attempt"))
    outcome = models.TextField(_("outcome"), choices=AttemptOutcome.choices)
    error_class = models.TextField(_("error class"), db_default=Value(""))
    error = models.TextField(_("error"), db_default=Value(""))
    traceback = models.TextField(_("traceback"), db_default=Value(""))
    worker = models.TextField(_("worker"), db_default=Value(""))
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("ended at"))
    log = models.TextField(_("captured log"), db_default=Value(""))

    class Meta:
        verbose_name = _("attempt")
        verbose_name_plural = _("attempts")
        indexes: ClassVar[Any] = [models.Index(fields=["job", "id"], name="pgjobs_attempt_of_job")]

    def __str__(self) -> str:
        return f"attempt {self.attempt} of job {self.job_id}"


class Stat(models.Model):
    """Counts and histograms of one minute, queue, kind and worker."""

    id = models.BigAutoField(primary_key=True)
    minute = models.DateTimeField()
    queue = models.TextField()
    kind = models.TextField()
    worker = models.TextField(db_default=Value(""))
    done = models.BigIntegerField(db_default=0)
    retried = models.BigIntegerField(db_default=0)
    dead = models.BigIntegerField(db_default=0)
    failed = models.BigIntegerField(db_default=0)
    cancelled = models.BigIntegerField(db_default=0)
    snoozed = models.BigIntegerField(db_default=0)
    released = models.BigIntegerField(db_default=0)
    lost = models.BigIntegerField(db_default=0)
    wait_ms = models.BigIntegerField(db_default=0)
    run_ms = models.BigIntegerField(db_default=0)
    wait_histogram = numbers()
    run_histogram = numbers()

    class Meta:
        constraints: ClassVar[Any] = [
            models.UniqueConstraint(fields=["minute", "queue", "kind", "worker"], name="pgjobs_stat_minute")
        ]

    def __str__(self) -> str:
        return f"{self.minute:%Y-%m-%d %H:%M} {self.queue} {self.kind}"
