"""The form of a schedule: what cannot be read, or can never fire, is refused with a sentence beside its field."""

from __future__ import annotations

import zoneinfo
from typing import Any

from django import forms
from django.conf import settings as django_settings
from django.forms.fields import InvalidJSONInput
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..api.enqueueing import prepare
from ..api.registry import UNSET, registry
from ..models import Schedule
from ..models.schedule import CENTURY
from ..schedules import cron
from .bases import ScheduleFormBase


class Suggesting(forms.TextInput):
    """A line of text with suggestions, which the browser offers while one types."""

    def __init__(self, suggestions: Any, **attrs: Any) -> None:
        super().__init__(attrs=attrs)
        self._suggestions = suggestions

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> SafeString:
        id_ = f"{(attrs or {}).get('id', name)}_suggestions"
        line = super().render(name, value, {**(attrs or {}), "list": id_}, renderer)
        options = format_html_join("", '<option value="{}">', ((text,) for text in self._suggestions()))
        return format_html('{}<datalist id="{}">{}</datalist>', line, id_, options)


class PayloadField(forms.JSONField):
    """Shows what was typed as it was typed: what JSON escapes (a lone surrogate) may be what no page can hold."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError):  # of the decoder: thousands of digits, or of levels
            raise forms.ValidationError(
                self.error_messages["invalid"], code="invalid", params={"value": value}
            ) from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        return initial if self.disabled else InvalidJSONInput(data or "")


class ScheduleForm(ScheduleFormBase):
    """When, and what. The rule is read by the same code that fires it."""

    class Meta:
        model = Schedule
        fields = (
            "name", "kind", "queue", "payload", "cron", "every", "timezone", "misfire", "overlap", "max_lateness", "enabled",
        )  # fmt: skip
        labels = {  # noqa: RUF012 - Django's Meta is read as it stands
            "cron": gettext_lazy("Cron expression"),
            "every": gettext_lazy("Or every"),
            "misfire": gettext_lazy("Missed ticks"),
            "overlap": gettext_lazy("If an earlier job has not ended"),
            "max_lateness": gettext_lazy("Never later than"),
        }
        help_texts = {  # noqa: RUF012
            "kind": gettext_lazy("The handler of its jobs."),
            "queue": gettext_lazy("Empty: the handler’s own."),
            "payload": gettext_lazy("The handler’s arguments, a JSON object."),
            "cron": gettext_lazy(
                "Minute, hour, day of month, month, day of week: “0 2 * * *” is every night at two, “*/15 9-17 * * 1-5” every "
                "quarter of an hour at work; or @hourly, @daily, @weekly, @monthly, @yearly."
            ),
            "every": gettext_lazy("An interval instead of cron: 00:05:00 is five minutes, “1 00:00:00” a day."),
            "timezone": gettext_lazy("By whose clocks the cron expression is read."),
            "misfire": gettext_lazy(
                "Ticks that came while no worker ran. Once: the last of them. Skip: none that is more than a minute late. "
                "All: each, the last hundred at most."
            ),
            "overlap": gettext_lazy(
                "Allow: another one is enqueued. Skip: none is. Queue one: one waits until the running one has ended."
            ),
            "max_lateness": gettext_lazy("A tick that could not fire for so long is left out. Empty: no limit."),
            "enabled": gettext_lazy(
                "Without it nothing fires. Enabled again, it starts from then: nothing is caught up."
            ),
        }
        field_classes = {"payload": PayloadField}  # noqa: RUF012
        widgets = {  # noqa: RUF012
            "name": forms.TextInput(attrs={"size": 40}),
            "kind": Suggesting(lambda: [handler.kind for handler in registry.handlers()], size=40),
            "queue": forms.TextInput(attrs={"size": 40}),
            "payload": forms.Textarea(attrs={"rows": 4, "cols": 60, "class": "pgj-json", "spellcheck": "false"}),
            "cron": forms.TextInput(attrs={"size": 40, "class": "pgj-json", "spellcheck": "false"}),
            "timezone": Suggesting(lambda: sorted(zoneinfo.available_timezones()), size=40),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("misfire", "overlap"):
            if name in self.fields:  # without the empty choice that a default of the database would bring
                field: Any = self.fields[name]
                field.choices = [choice for choice in field.choices if choice[0]]

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if len(name.encode()) > 255:
            raise forms.ValidationError(_("At most 255 bytes."))
        return name

    def clean_queue(self) -> str | None:
        return self.cleaned_data["queue"] or None

    def clean_payload(self) -> Any:
        payload = self.cleaned_data["payload"]
        if payload is None:
            return {}
        if not isinstance(payload, dict):
            raise forms.ValidationError(_('It has to be a JSON object, such as {"name": "value"}.'))
        return payload

    def clean_max_lateness(self) -> Any:
        limit = self.cleaned_data["max_lateness"]
        if limit is not None and limit.total_seconds() <= 0:
            raise forms.ValidationError(_("It has to be above zero. Empty means no limit."))
        if limit is not None and limit > CENTURY:
            raise forms.ValidationError(_("At most a century."))
        return limit

    def clean(self) -> dict[str, Any] | None:
        super().clean()
        if "cron" in self.fields:
            self._check_rule()
        if not {"kind", "payload", "queue"} - set(self.cleaned_data):
            self._check_job()
        return self.cleaned_data

    def _check_rule(self) -> None:
        if self.errors.get("cron") or self.errors.get("every"):
            return
        expression, every = self.cleaned_data.get("cron"), self.cleaned_data.get("every")
        if not expression and every is None:
            self.add_error("cron", _("Say when: a cron expression, or an interval."))
        elif expression and every is not None:
            self.add_error("every", _("Either a cron expression or an interval, not both."))
        elif every is not None and every.total_seconds() < 1:
            self.add_error("every", _("At least one second."))
        elif every is not None and every > CENTURY:
            self.add_error("every", _("At most a century."))
        zone = self.cleaned_data.get("timezone") or django_settings.TIME_ZONE
        try:
            cron.check("@daily", zone)
        except ValueError as e:
            self.add_error("timezone", str(e))
        if expression:
            try:
                cron.check(expression, "UTC")
            except ValueError as e:
                self.add_error("cron", str(e))

    def _check_job(self) -> None:
        """What enqueue() would refuse is refused now, and not tonight."""
        queue = self.cleaned_data["queue"]
        try:
            prepare(self.cleaned_data["kind"], self.cleaned_data["payload"], queue=UNSET if queue is None else queue)
        except ValueError as e:
            said = str(e)
            self.add_error(next((name for name in ("payload", "queue") if said.startswith(name)), "kind"), said)
