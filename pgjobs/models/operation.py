"""What operators and workers say: pauses, wishes to run again, and who is alive."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models import Q, Value
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from .fields import texts


class Pause(models.Model):
    """No new claims of a queue or a kind, until a time or until it is resumed."""

    id = models.BigAutoField(primary_key=True)
    scope = models.TextField(_("scope"), choices=[("queue", _("queue")), ("kind", _("kind"))])
    name = models.TextField(_("name"))
    until = models.DateTimeField(_("until"), null=True, blank=True, help_text=_("Empty: until it is resumed."))
    by = models.TextField(_("by"), blank=True, db_default=Value(""))
    reason = models.TextField(_("reason"), blank=True, db_default=Value(""))
    created_at = models.DateTimeField(_("since"), db_default=Now())

    class Meta:
        verbose_name = _("pause")
        verbose_name_plural = _("pauses")
        constraints: ClassVar[Any] = [
            models.UniqueConstraint(fields=["scope", "name"], name="pgjobs_pause_name"),
            models.CheckConstraint(condition=Q(scope__in=["queue", "kind"]), name="pgjobs_pause_scope"),
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.name}"


class Rerun(models.Model):
    """A wish to run again once the holder of a dedupe key has ended; one a (kind, dedupe key)."""

    id = models.BigAutoField(primary_key=True)
    kind = models.TextField()
    dedupe_key = models.TextField()
    queue = models.TextField()
    payload = models.JSONField()
    priority = models.SmallIntegerField()
    run_after = models.DateTimeField()
    max_attempts = models.IntegerField()
    timeout = models.DurationField(null=True)
    expires_at = models.DateTimeField(null=True)
    meta = models.JSONField(null=True)
    parent_id = models.BigIntegerField(null=True)
    schedule_id = models.BigIntegerField(null=True)
    scheduled_for = models.DateTimeField(null=True)
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints: ClassVar[Any] = [models.UniqueConstraint(fields=["kind", "dedupe_key"], name="pgjobs_rerun_key")]

    def __str__(self) -> str:
        return f"{self.kind} {self.dedupe_key}"


class Worker(models.Model):
    """A worker process, for people to look at; nothing depends on it."""

    name = models.TextField(primary_key=True)
    host = models.TextField(_("host"))
    pid = models.IntegerField(_("pid"))
    queues = texts()
    exclude_queues = texts()
    kinds = texts()
    threads = models.IntegerField(_("threads"))
    running = models.IntegerField(_("running"), db_default=0)
    stopping = models.BooleanField(_("stopping"), db_default=False)
    started_at = models.DateTimeField(_("started at"), db_default=Now())
    beat_at = models.DateTimeField(_("last beat"), db_default=Now())

    class Meta:
        verbose_name = _("worker")
        verbose_name_plural = _("workers")

    def __str__(self) -> str:
        return self.name
