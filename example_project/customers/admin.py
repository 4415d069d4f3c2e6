"""Customers, digests and reports in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from example_project.customers.jobs import sync_later
from example_project.customers.models import Customer, Digest, DigestMail, WeeklyReport


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Also what is saved here goes to the CRM: the admin saves in a transaction, and the job joins it."""

    list_display = ("name", "email", "city", "wants_digest", "crm_synced_at")
    list_filter = ("wants_digest",)
    search_fields = ("name", "email")
    readonly_fields = ("crm_synced_at",)

    def save_model(self, request: HttpRequest, obj: Customer, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        sync_later(obj)


@admin.register(Digest)
class DigestAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("day", "body")
    readonly_fields = ("body",)


@admin.register(DigestMail)
class DigestMailAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("digest", "customer", "sent_at")
    list_select_related = ("digest", "customer")
    raw_id_fields = ("digest", "customer")


@admin.register(WeeklyReport)
class WeeklyReportAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("week", "new_users", "new_customers", "digest_mails", "products_changed", "written_at")
