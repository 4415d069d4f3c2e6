"""Recurring jobs: the rule, and each of its firings."""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar

from django.db import models
from django.db.models import Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _


class Schedule(models.Model):
    """A recurring rule, made in code or in the admin."""

    id = models.BigAutoField(primary_key=True)
    name = models.TextField(_("name"), unique=True)
    kind = models.TextField(_("kind"))
    queue = models.TextField(_("queue"), null=True, blank=True)  # noqa: DJ001 - NULL: the handler's
    payload = models.JSONField(_("payload"), blank=True, db_default=Value({}, output_field=models.JSONField()))
    cron = models.TextField(_("cron"), blank=True, db_default=Value(""))
    every = models.DurationField(_("every"), null=True, blank=True)
    timezone = models.TextField(_("time zone"))
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
    retired_at = models.DateTimeField(_("retired at"), null=True, blank=True)
    next_run_at = models.DateTimeField(_("next tick"), null=True, blank=True)
    last_tick_at = models.DateTimeField(_("last tick"), null=True, blank=True)
    last_error = models.TextField(_("last error"), blank=True, db_default=Value(""))
    errors = models.IntegerField(_("errors in a row"), db_default=0)
    skipped = models.BigIntegerField(_("skipped"), db_default=0)
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    updated_at = models.DateTimeField(_("updated at"), db_default=Now())

    class Meta:
        verbose_name = _("schedule")
        verbose_name_plural = _("schedules")
        constraints: ClassVar[Any] = [
            models.CheckConstraint(
                condition=models.Q(every__isnull=True) | models.Q(every__gte=dt.timedelta(seconds=1)),
                name="pgjobs_schedule_every",
            )
        ]

    def __str__(self) -> str:
        return self.name


class Tick(models.Model):
    """One firing of a schedule, unique by its nominal time; inserted in the transaction of its job."""

    id = models.BigAutoField(primary_key=True)
    schedule = models.ForeignKey(Schedule, models.CASCADE, related_name="ticks")
    scheduled_for = models.DateTimeField(_("nominal time"))
    job_id = models.BigIntegerField(_("job"), null=True, blank=True)
    outcome = models.TextField(
        _("outcome"), choices=[("enqueued", _("enqueued")), ("skipped", _("skipped"))], db_default=Value("enqueued")
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
