"""The admin of pauses: adding one pauses, deleting one resumes. Both are verbs of the store."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db import connections, models
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from .. import store
from ..conf import get_settings
from ..models import Pause
from .bases import PauseBase, PauseFormBase


class PauseForm(PauseFormBase):
    """What is paused, until when, and why. Who is taken from the request."""

    class Meta:
        model = Pause
        fields = ("scope", "name", "until", "reason")

    def clean_until(self) -> Any:
        until = self.cleaned_data["until"]
        if until is not None and until <= timezone.now():
            raise ValidationError(_("That is over already. Leave it empty to pause until somebody resumes."))
        return until


@admin.register(Pause)
class PauseAdmin(PauseBase):
    """Who may add pauses may pause, who may delete them may resume."""

    form = PauseForm
    list_display = ("name", "scope", "until", "by", "reason", "created_at")
    fields = ("scope", "name", "until", "reason")
    ordering = ("scope", "name")
    formfield_overrides: ClassVar = {models.TextField: {"widget": forms.TextInput(attrs={"size": 60})}}

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pause]:
        return Pause._default_manager.using(get_settings().DATABASE).order_by(*self.ordering)

    def save_model(self, request: HttpRequest, obj: Pause, form: Any, change: bool) -> None:
        connection = connections[get_settings().DATABASE]
        store.pause(
            connection, obj.scope, obj.name, until=obj.until, by=request.user.get_username(), reason=obj.reason or ""
        )
        obj.pk = Pause.objects.using(connection.alias).get(scope=obj.scope, name=obj.name).pk

    def delete_model(self, request: HttpRequest, obj: Pause) -> None:
        store.resume(connections[get_settings().DATABASE], obj.scope, obj.name)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Pause]) -> None:
        for scope, name in list(queryset.values_list("scope", "name")):
            store.resume(connections[get_settings().DATABASE], scope, name)
