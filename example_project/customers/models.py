"""The shop's customers, the daily digest that they get, and the week's figures."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.urls import reverse


class Customer(models.Model):
    """A company that buys from us."""

    name = models.CharField(max_length=200)
    email = models.EmailField()
    city = models.CharField(max_length=100, blank=True)
    wants_digest = models.BooleanField("wants the daily digest", default=True)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True)
    crm_synced_at = models.DateTimeField("in the CRM since", null=True, editable=False)

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        return reverse("customers:edit", args=[self.pk])


class Digest(models.Model):
    """The digest of one day. What is the same for all its readers is worked out once and kept here."""

    day = models.DateField(unique=True)
    body = models.TextField(blank=True, editable=False)

    class Meta:
        ordering = ("-day",)

    def __str__(self) -> str:
        return f"digest of {self.day}"


class DigestMail(models.Model):
    """One customer's copy of a digest. Whether it was sent is what makes `send_digest_mail` idempotent."""

    digest = models.ForeignKey(Digest, models.CASCADE, related_name="mails")
    customer = models.ForeignKey(Customer, models.CASCADE)
    sent_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(fields=["digest", "customer"], name="one_digest_mail_each")]

    def __str__(self) -> str:
        return f"{self.digest} to {self.customer}"


class WeeklyReport(models.Model):
    """The figures of one ISO week. One row a week, so writing it again corrects it."""

    week = models.CharField(max_length=8, unique=True, help_text="As in 2026-W49.")
    written_at = models.DateTimeField(auto_now=True)
    new_users = models.PositiveIntegerField()
    new_customers = models.PositiveIntegerField()
    synced_customers = models.PositiveIntegerField()
    digest_mails = models.PositiveIntegerField()
    price_lists = models.PositiveIntegerField()
    products_changed = models.PositiveIntegerField()

    class Meta:
        ordering = ("-week",)

    def __str__(self) -> str:
        return f"report of {self.week}"
