"""What handlers leave behind."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import models
from django.db.models.functions import Now


class Note(models.Model):
    """An effect in the handler's own transaction: it is there if and only if that was committed."""

    text = models.TextField()
    job_id = models.BigIntegerField(null=True)

    def __str__(self) -> str:
        return self.text


class Audit(models.Model):
    """What happened, in order; written through a connection of its own, so it stays whatever is rolled back."""

    job_id = models.BigIntegerField(null=True)
    attempt = models.IntegerField(null=True)
    event = models.TextField()
    data = models.JSONField(null=True)
    pid = models.IntegerField()
    thread = models.BigIntegerField()
    at = models.DateTimeField(db_default=Now())

    class Meta:
        indexes: ClassVar[Any] = [models.Index(fields=["job_id", "id"], name="testapp_audit_of_job")]

    def __str__(self) -> str:
        return f"{self.event} of job {self.job_id}, attempt {self.attempt}"
