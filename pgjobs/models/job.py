"""``pgjobs_job``: one row a job; and its archive, with the same columns."""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar

from django.db import models
from django.db.models import F, Q, Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from ..states import FINAL, LIVE, Status
from .fields import bytes_between, is_object, texts

FIRST = dt.datetime(1, 1, 2, tzinfo=dt.UTC)
LAST = dt.datetime(9999, 12, 30, tzinfo=dt.UTC)
"""Times of a job lie between these."""


class JobColumns(models.Model):
    """What a job and an archived job have in common. Everything but ``kind`` has a default in the database."""

    # In an order that PostgreSQL reads fast: first what has a fixed width and is never NULL, then what claims look at.
    id = models.BigAutoField(primary_key=True)
    run_after = models.DateTimeField(_("run after"), db_default=Now())
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    updated_at = models.DateTimeField(_("updated at"), db_default=Now())
    attempts = models.IntegerField(_("attempts"), db_default=0)
    max_attempts = models.IntegerField(_("max attempts"), db_default=10)
    priority = models.SmallIntegerField(
        _("priority"), db_default=0, help_text=_("From -100 to 100; the highest runs first.")
    )
    refunds = models.SmallIntegerField(db_default=0, help_text=_("Attempts given back by stopping workers."))
    snoozes = models.SmallIntegerField(db_default=0, help_text=_("Times that the handler asked to run later."))
    lost = models.SmallIntegerField(db_default=0, help_text=_("Attempts lost with their worker, in a row."))
    suspect = models.BooleanField(db_default=False, help_text=_("Its worker died while it ran: it runs alone."))
    status = models.TextField(_("status"), choices=Status.choices, db_default=Value("pending"))
    queue = models.TextField(_("queue"), db_default=Value("default"))
    kind = models.TextField(_("kind"), help_text=_("The name of the handler."))
    lease = models.BigIntegerField(null=True, blank=True, help_text=_("The token of the claim that holds the job."))
    reserved_until = models.DateTimeField(_("reserved until"), null=True, blank=True)
    reserved_at = models.DateTimeField(_("reserved at"), null=True, blank=True)
    last_attempted_at = models.DateTimeField(_("last attempted at"), null=True, blank=True)
    started_at = models.DateTimeField(_("first started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    cancel_requested_at = models.DateTimeField(_("cancel requested at"), null=True, blank=True)
    timeout = models.DurationField(
        _("timeout"), null=True, blank=True, db_default=dt.timedelta(minutes=5), help_text=_("Empty: no limit.")
    )
    schedule_id = models.BigIntegerField(null=True, blank=True)
    scheduled_for = models.DateTimeField(_("scheduled for"), null=True, blank=True)
    parent_id = models.BigIntegerField(null=True, blank=True, help_text=_("The job whose handler enqueued this one."))
    dedupe_key = models.TextField(_("dedupe key"), null=True, blank=True)  # noqa: DJ001 - NULL means no key; '' is refused
    reserved_by = models.TextField(_("reserved by"), null=True, blank=True)  # noqa: DJ001
    worker = models.TextField(_("last worker"), null=True, blank=True)  # noqa: DJ001
    worker_ids = texts(help_text=_("Who ran it, one entry an attempt, the latest 32."))
    payload = models.JSONField(_("payload"), blank=True, db_default=Value({}, output_field=models.JSONField()))
    meta = models.JSONField(_("meta"), null=True, blank=True, help_text=_("Context of the enqueueing code."))
    last_error = models.TextField(_("last error"), null=True, blank=True)  # noqa: DJ001
    error_class = models.TextField(_("error class"), null=True, blank=True)  # noqa: DJ001
    result = models.JSONField(_("result"), null=True, blank=True)
    progress = models.JSONField(_("progress"), null=True, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"{self.kind} #{self.pk}"


class Job(JobColumns):
    """One job. Change it with the verbs of ``pgjobs.store``, never by hand: the constraints refuse a broken state."""

    class Meta:
        verbose_name = _("job")
        verbose_name_plural = _("jobs")
        permissions: ClassVar[Any] = [
            ("retry_job", "Can retry a job"),
            ("cancel_job", "Can cancel a job"),
            ("view_payload", "Can see the payload and the result of a job"),
        ]
        indexes: ClassVar[Any] = [
            # The claim: equality on queue and priority, a range of run_after, in the order of the claim.
            models.Index(
                "queue", F("priority").desc(), "run_after", "id", name="pgjobs_claim", condition=Q(status="pending")
            ),
            # Reap, "what runs now", a dead worker's rows. reserved_until is not in it: heartbeats stay HOT.
            models.Index(fields=["reserved_by"], name="pgjobs_reserved", condition=Q(status="reserved")),
            # Dead letters and finished jobs by kind, in the admin.
            models.Index(
                fields=["kind", "status", "finished_at"], name="pgjobs_finished", condition=Q(finished_at__isnull=False)
            ),
            # Retention: the oldest of a status first.
            models.Index(fields=["status", "finished_at"], name="pgjobs_prune", condition=Q(finished_at__isnull=False)),
            # Jobs that must run alone, few at any time.
            models.Index(fields=["id"], name="pgjobs_suspects", condition=Q(status="pending", suspect=True)),
            # Expiry: pending jobs that expire.
            models.Index(
                fields=["expires_at"], name="pgjobs_expire", condition=Q(status="pending", expires_at__isnull=False)
            ),
        ]
        constraints: ClassVar[Any] = [
            models.UniqueConstraint(
                fields=["kind", "dedupe_key"],
                name="pgjobs_dedupe",
                condition=Q(dedupe_key__isnull=False, status__in=LIVE),
            ),
            models.CheckConstraint(condition=Q(status__in=Status.values), name="pgjobs_job_status"),
            models.CheckConstraint(
                condition=Q(
                    status="reserved", lease__isnull=False, reserved_by__isnull=False, reserved_until__isnull=False
                )
                | (
                    ~Q(status="reserved") & Q(lease__isnull=True, reserved_by__isnull=True, reserved_until__isnull=True)
                ),
                name="pgjobs_job_reserved_has_lease",
            ),
            models.CheckConstraint(
                condition=Q(status__in=FINAL, finished_at__isnull=False) | Q(status__in=LIVE, finished_at__isnull=True),
                name="pgjobs_job_final_has_finished_at",
            ),
            models.CheckConstraint(condition=Q(attempts__gte=0), name="pgjobs_job_attempts"),
            models.CheckConstraint(condition=Q(max_attempts__gte=1), name="pgjobs_job_max_attempts"),
            models.CheckConstraint(condition=Q(priority__gte=-100, priority__lte=100), name="pgjobs_job_priority"),
            models.CheckConstraint(condition=Q(timeout__gt=dt.timedelta(0)), name="pgjobs_job_timeout"),
            # Not infinity, and no year that Python does not know: whoever reads the row must be able to.
            models.CheckConstraint(condition=Q(run_after__gte=FIRST, run_after__lte=LAST), name="pgjobs_job_run_after"),
            models.CheckConstraint(
                condition=Q(expires_at__gte=FIRST, expires_at__lte=LAST), name="pgjobs_job_expires_at"
            ),
            is_object("payload", name="pgjobs_job_payload_is_object"),
            bytes_between("kind", 1, 255, name="pgjobs_job_kind_length"),
            bytes_between("queue", 1, 255, name="pgjobs_job_queue_length"),
            bytes_between("dedupe_key", 1, 2000, name="pgjobs_job_dedupe_key_length"),
        ]


class ArchivedJob(JobColumns):
    """A finished job, moved out of the way. The table is partitioned by ``finished_at``; SQL makes it."""

    archived_at = models.DateTimeField(_("archived at"), db_default=Now())

    class Meta:
        verbose_name = _("archived job")
        verbose_name_plural = _("archived jobs")
