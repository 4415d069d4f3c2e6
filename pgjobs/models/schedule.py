"""Recurring jobs: the rule, each of its firings, and which code declared what."""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar

from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from .fields import Document, bytes_between, is_object
from .job import FIRST, LAST

CENTURY = dt.timedelta(days=36_525)


class Schedule(models.Model):
    """A recurring rule, made in code, in the admin, or by plain SQL: either ``cron`` in ``timezone``, or ``every``.

    Its trigger watches the rule: what changes it, or enables it again, empties ``next_run_at`` and raises ``revision``; a
    worker then computes the next time after now. Any row that leaves ``next_run_at`` empty is completed in that way.
    """

    id = models.BigAutoField(primary_key=True)
    name = models.TextField(_("name"), unique=True)
    kind = models.TextField(_("kind"))
    queue = models.TextField(_("queue"), null=True, blank=True)  # noqa: DJ001 - NULL: the handler's
    payload = Document(_("payload"), blank=True, db_default=Value({}, output_field=models.JSONField()))
    payload_from = models.TextField(
        _("payload made by"),
        blank=True,
        editable=False,
        db_default=Value(""),
        help_text=_("The function that makes the payload of each tick, when the code gave one."),
    )
    cron = models.TextField(_("cron"), blank=True, db_default=Value(""))
    every = models.DurationField(
        _("every"),
        null=True,
        blank=True,
        help_text=_("Counted from 1970-01-01 00:00 UTC: each tick is a multiple of it."),
    )
    timezone = models.TextField(
        _("time zone"),
        blank=True,
        db_default=Value(""),
        help_text=_("The zone of the cron expression. Empty: a worker's TIME_ZONE, which is then stored here."),
    )
    misfire = models.TextField(
        _("missed ticks"),
        choices=[("skip", _("skip")), ("once", _("once")), ("all", _("all"))],
        db_default=Value("once"),
    )
    overlap = models.TextField(
        _("overlap"),
        choices=[("allow", _("allow")), ("skip", _("skip")), ("queue_one", _("queue one"))],
        db_default=Value("allow"),
    )
    max_lateness = models.DurationField(_("max lateness"), null=True, blank=True)
    enabled = models.BooleanField(_("enabled"), db_default=True)
    source = models.TextField(
        _("source"), choices=[("code", _("code")), ("admin", _("admin"))], db_default=Value("admin")
    )
    project = models.TextField(
        _("project"), blank=True, editable=False, db_default=Value(""), help_text=_("Whose code declares it.")
    )
    retired_at = models.DateTimeField(
        _("retired at"), null=True, blank=True, help_text=_("When it left the code; it fires no more.")
    )
    revision = models.BigIntegerField(_("revision"), editable=False, db_default=0)
    next_run_at = models.DateTimeField(_("next tick"), null=True, blank=True)
    last_tick_at = models.DateTimeField(_("last tick"), null=True, blank=True)
    last_error = models.TextField(_("last error"), blank=True, db_default=Value(""))
    errors = models.IntegerField(_("errors in a row"), db_default=0)
    retry_at = models.DateTimeField(
        _("tried again at"), null=True, blank=True, help_text=_("After an error it is left alone until then.")
    )
    skipped = models.BigIntegerField(
        _("skipped"), db_default=0, help_text=_("Ticks that were left out because an earlier job had not ended.")
    )
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    updated_at = models.DateTimeField(_("updated at"), db_default=Now())

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        constraints: ClassVar[Any] = [
            models.CheckConstraint(
                condition=Q(every__gte=dt.timedelta(seconds=1), every__lte=CENTURY), name="pgjobs_schedule_every"
            ),
            models.CheckConstraint(
                condition=(Q(cron="") & Q(every__isnull=False)) | (~Q(cron="") & Q(every__isnull=True)),
                name="pgjobs_schedule_cron_or_every",
            ),
            models.CheckConstraint(condition=Q(misfire__in=["skip", "once", "all"]), name="pgjobs_schedule_misfire"),
            models.CheckConstraint(
                condition=Q(overlap__in=["allow", "skip", "queue_one"]), name="pgjobs_schedule_overlap"
            ),
            models.CheckConstraint(condition=Q(source__in=["code", "admin"]), name="pgjobs_schedule_source"),
            models.CheckConstraint(
                condition=Q(max_lateness__gt=dt.timedelta(0), max_lateness__lte=CENTURY),
                name="pgjobs_schedule_max_lateness",
            ),
            # No infinity, and no year that Python does not know: a row that cannot be read would stop all the others.
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{column}__gte": FIRST, f"{column}__lte": LAST}), name=f"pgjobs_schedule_{column}"
                )
                for column in ("next_run_at", "last_tick_at", "retry_at", "updated_at")
            ),
            is_object("payload", name="pgjobs_schedule_payload_is_object"),
            bytes_between("name", 1, 255, name="pgjobs_schedule_name_length"),
            bytes_between("kind", 1, 255, name="pgjobs_schedule_kind_length"),
            bytes_between("queue", 1, 255, name="pgjobs_schedule_queue_length"),
        ]

    def __str__(self) -> str:
        return self.name


class Tick(models.Model):
    """One firing of a schedule, unique by its nominal time; inserted in the transaction of its job.

    ``outcome`` is enqueued (``job_id`` is its job), queued (its job comes when the running one has ended), skipped (an
    earlier job had not ended) or missed (it came too late, by ``misfire`` or ``max_lateness``; of several in a row only
    the last has a row).
    """

    id = models.BigAutoField(primary_key=True)
    # Without a constraint in the database: there a trigger removes a schedule's ticks, so that a plain DELETE works.
    schedule = models.ForeignKey(
        Schedule, models.CASCADE, related_name="ticks", db_constraint=False, db_index=False, verbose_name=_("schedule")
    )
    scheduled_for = models.DateTimeField(_("nominal time"))
    job_id = models.BigIntegerField(_("job"), null=True, blank=True)
    outcome = models.TextField(
        _("outcome"),
        choices=[
            ("enqueued", _("enqueued")),
            ("queued", _("queued")),
            ("skipped", _("skipped")),
            ("missed", _("missed")),
        ],
        db_default=Value("enqueued"),
    )
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        verbose_name = _("tick")
        verbose_name_plural = _("ticks")
        constraints: ClassVar[Any] = [
            models.UniqueConstraint(fields=["schedule", "scheduled_for"], name="pgjobs_tick_once")
        ]

    def __str__(self) -> str:
        return f"{self.schedule_id} at {self.scheduled_for:%Y-%m-%d %H:%M:%S%z}"


class Declaration(models.Model):
    """One set of schedules that some version of a project's code declared, known by its fingerprint.

    The one with the latest ``current_since`` is in force; a worker with another one (the old side of a rolling deploy)
    changes nothing while workers of the current one are seen.
    """

    id = models.BigAutoField(primary_key=True)
    project = models.TextField()
    fingerprint = models.TextField()
    current_since = models.DateTimeField(db_default=Now())
    seen_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar[Any] = [
            models.UniqueConstraint(fields=["project", "fingerprint"], name="pgjobs_declaration_once")
        ]

    def __str__(self) -> str:
        return f"{self.project or 'the project'} {self.fingerprint[:12]}"
