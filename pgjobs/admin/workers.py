"""The admin of workers: who is alive, what they serve, how much they run. Only to look at."""

from __future__ import annotations

import datetime as dt
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import get_settings
from ..models import Worker
from .bases import WorkerBase
from .wording import relative, time_tag, visible


@admin.register(Worker)
class WorkerAdmin(WorkerBase):
    """Read-only. A row is removed by its worker when it ends as it should, and by others after a day of silence."""

    list_display = ("state", "title", "host", "pid", "serves", "load", "started", "last_beat")
    list_display_links = ("title",)
    fields = ("state", "name", "host", "pid", "serves", "known_kinds", "load", "started_at", "beat_at")
    readonly_fields = fields
    ordering = ("-beat_at",)

    class Media:
        css = {"all": ("pgjobs/admin.css",)}  # noqa: RUF012 - Django's Media is read as it stands

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        return Worker._default_manager.using(get_settings().DATABASE).annotate(seen_at=Now()).order_by(*self.ordering)

    @admin.display(description=gettext_lazy("state"))
    def state(self, worker: Any) -> SafeString:
        silent = worker.seen_at - worker.beat_at > dt.timedelta(seconds=2 * get_settings().LEASE)
        name, label = ("dead", _("Silent")) if silent else ("done", _("Alive"))
        if worker.stopping and not silent:
            name, label = "cancelled", _("Stopping")
        return format_html('<span class="pgj-badge is-{}">{}</span>', name, label)

    @admin.display(description=gettext_lazy("name"))
    def title(self, worker: Worker) -> SafeString:
        return format_html("<bdi>{}</bdi>", visible(worker.name))

    @admin.display(description=gettext_lazy("queues"))
    def serves(self, worker: Worker) -> str:
        served = ", ".join(worker.queues) or _("all")
        if worker.exclude_queues:
            served += _(" but ") + ", ".join(worker.exclude_queues)
        return visible(served)

    @admin.display(description=gettext_lazy("kinds"))
    def known_kinds(self, worker: Worker) -> str:
        return visible(", ".join(worker.kinds)) or _("all")

    @admin.display(description=gettext_lazy("running"))
    def load(self, worker: Worker) -> str:
        return _("%(n)d on %(threads)d threads") % {"n": worker.running, "threads": worker.threads}

    @admin.display(description=gettext_lazy("started"))
    def started(self, worker: Any) -> SafeString:
        return time_tag(worker.started_at, relative(worker.started_at, worker.seen_at))

    @admin.display(description=gettext_lazy("last beat"))
    def last_beat(self, worker: Any) -> SafeString:
        return time_tag(worker.beat_at, relative(worker.beat_at, worker.seen_at))
