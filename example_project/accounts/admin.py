"""Welcome mails in the admin: a log, so nothing in it can be changed."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest

from example_project.accounts.models import WelcomeMail


@admin.register(WelcomeMail)
class WelcomeMailAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("user", "sent_at")
    list_select_related = ("user",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: WelcomeMail | None = None) -> bool:
        return False
