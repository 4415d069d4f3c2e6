"""The admin of schedules: rows that people make, edit, pause and run; those of the code can be paused."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

from django.conf import settings as django_settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, QuerySet, Subquery
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import path, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..api.registry import registry
from ..conf import get_settings
from ..models import Job, Schedule, Tick
from ..schedules import overview, run_now
from . import detail, schedule_page
from .bases import ScheduleBase
from .masking import Masker
from .schedule_form import ScheduleForm
from .wording import first_line, relative, time_tag, visible

logger = logging.getLogger("pgjobs")

WHAT = ("name", "kind", "queue", "payload")
WHEN = ("cron", "every", "timezone")
HOW = ("misfire", "overlap", "max_lateness", "enabled")


@admin.register(Schedule)
class ScheduleAdmin(ScheduleBase):
    """Who may change schedules may also pause them and run them now."""

    form = ScheduleForm
    list_display = ("state", "title", "rule", "following", "last", "made")
    list_display_links = ("title",)
    search_fields = ("name", "kind")
    ordering = ("name",)
    sortable_by = ()
    list_per_page = 100
    actions = ("run", "pause", "resume")
    change_form_template = "admin/pgjobs/schedule/change_form.html"
    change_list_template = "admin/pgjobs/schedule/change_list.html"

    class Media:
        css: ClassVar = {"all": ("pgjobs/admin.css",)}
        js = ("pgjobs/admin.js",)

    # Who may what.

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """A schedule of the code goes with the code: deleted here, it would be back at the next start."""
        of_code = obj is not None and obj.source == "code" and obj.retired_at is None
        return super().has_delete_permission(request, obj) and not of_code

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        if obj is None or obj.source != "code":
            return ("shown_payload",)
        return (*WHAT, *WHEN, *HOW[:-1], "shown_payload", *(("enabled",) if obj.retired_at is not None else ()))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Payloads are for who may edit them here, and for who may see payloads."""
        editable = obj is None or (obj.source != "code" and self.has_change_permission(request, obj))
        what = WHAT if editable else WHAT[:-1]
        if not editable and request.user.has_perm(f"{self.opts.app_label}.view_payload"):
            what = (*what, "shown_payload")
        return [(None, {"fields": what}), (_("When"), {"fields": WHEN}), (_("How"), {"fields": HOW})]

    # What is read and written.

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        tick = Tick._default_manager.filter(schedule=OuterRef("pk")).order_by("-scheduled_for")
        job = Job._default_manager.filter(pk=OuterRef("last_job"))
        return (
            Schedule._default_manager.using(get_settings().DATABASE)
            .annotate(
                seen_at=Now(),
                last_for=Subquery(tick.values("scheduled_for")[:1]),
                last_outcome=Subquery(tick.values("outcome")[:1]),
                last_job=Subquery(tick.values("job_id")[:1]),
            )
            .annotate(last_status=Subquery(job.values("status")[:1]))
            .order_by(*self.ordering)
        )

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        defaults = {"timezone": django_settings.TIME_ZONE, "misfire": "once", "overlap": "allow", "enabled": True}
        return {**defaults, "payload": {}, **super().get_changeform_initial_data(request)}

    def save_model(self, request: HttpRequest, obj: Schedule, form: Any, change: bool) -> None:
        """Only what was edited: meanwhile a worker may have moved the rest. The table's trigger tells the workers."""
        using = get_settings().DATABASE
        if not change:
            obj.save(using=using)
        elif form.changed_data:
            obj.save(using=using, update_fields=form.changed_data)
        if registry.find(obj.kind) is None:
            text = _("No handler here is called “%(kind)s”: other code has to run its jobs.") % {"kind": obj.kind}
            self.message_user(request, visible(text), messages.WARNING)

    def delete_model(self, request: HttpRequest, obj: Schedule) -> None:
        obj.delete(using=get_settings().DATABASE)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Without a list of every tick, which may be a hundred thousand."""
        protected = [str(obj) for obj in objs if not self.has_delete_permission(request, obj)]
        names = [visible(str(obj)) for obj in objs]
        return names, {self.opts.verbose_name_plural: len(names)}, set(), protected

    # The pages.

    def get_urls(self) -> list[Any]:
        run = path("<int:schedule_id>/run/", self.admin_site.admin_view(self.run_view), name="pgjobs_schedule_run")
        return [run, *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        warnings = detail.surroundings(get_settings())
        return super().changelist_view(request, {"warnings": warnings, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        schedule = self.get_object(request, unquote(object_id))
        shown = None
        if schedule is not None and self.has_view_or_change_permission(request, schedule):
            shown = schedule_page.read(schedule, get_settings().DATABASE)
        may_run = schedule is not None and schedule.retired_at is None and self.has_change_permission(request, schedule)
        context = {"shown": shown, "may_run": may_run, "subtitle": None, **(extra_context or {})}
        return super().change_view(request, object_id, form_url, context)

    def run_view(self, request: HttpRequest, schedule_id: int) -> HttpResponse:
        """The button *run now*."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        schedule = self.get_object(request, str(schedule_id))
        if schedule is None or not self.has_change_permission(request, schedule):
            raise PermissionDenied
        self._run_now(request, schedule)
        address = reverse("admin:pgjobs_schedule_change", args=(schedule.pk,), current_app=self.admin_site.name)
        return HttpResponseRedirect(address)

    # The actions of the list.

    @admin.action(permissions=["change"], description=gettext_lazy("Run now (a separate job)"))
    def run(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        for schedule in queryset:
            self._run_now(request, schedule)

    @admin.action(permissions=["change"], description=gettext_lazy("Pause"))
    def pause(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._enable(request, queryset, False, gettext_lazy("paused"))

    @admin.action(permissions=["change"], description=gettext_lazy("Resume"))
    def resume(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        self._enable(request, queryset, True, gettext_lazy("resumed"))

    def _run_now(self, request: HttpRequest, schedule: Schedule) -> None:
        name = visible(schedule.name)
        if schedule.retired_at is not None:
            self.message_user(request, _("%(name)s left the code: it is not run.") % {"name": name}, messages.ERROR)
            return
        try:
            ran = run_now(schedule)
        except ValueError as e:
            logger.error("schedule %r: run now: %s", schedule.name, e)
            self.message_user(request, f"{name}: {visible(str(e))}", messages.ERROR)
            return
        self.log_change(request, schedule, _("Run now: job #%(id)s.") % {"id": ran.job_id})
        text = _("%(name)s runs now, as job %(job)s. Its next tick stays as it is.")
        job = job_link(ran.job_id)
        self.message_user(request, format_html(text.replace("%(name)s", "{}").replace("%(job)s", "{}"), name, job))

    def _enable(self, request: HttpRequest, queryset: QuerySet[Schedule], enabled: bool, done: Any) -> None:
        found = list(queryset.filter(enabled=not enabled, retired_at__isnull=True).order_by("pk"))
        for schedule in found:
            schedule.enabled = enabled
            schedule.save(update_fields=["enabled"])
            self.log_change(request, schedule, str(done))
        text = ngettext("%(n)d schedule %(done)s.", "%(n)d schedules %(done)s.", len(found))
        self.message_user(request, text % {"n": len(found), "done": done})

    # The cells.

    @admin.display(description=gettext_lazy("state"))
    def state(self, schedule: Schedule) -> SafeString:
        badge, label = schedule_page.LABELS[overview.state(schedule)]
        return format_html('<span class="pgj-badge is-{}">{}</span>', badge, label)

    @admin.display(description=gettext_lazy("schedule and last error"))
    def title(self, schedule: Schedule) -> SafeString:
        kind = "" if schedule.kind == schedule.name else schedule.kind
        error = first_line(schedule.last_error)
        return format_html(
            '<bdi class="pgj-kind">{}</bdi> <span class="pgj-id">{}</span>{}',
            visible(schedule.name),
            visible(kind),
            format_html('<span class="pgj-error">{}</span>', visible(error)) if error else "",
        )

    @admin.display(description=gettext_lazy("when"))
    def rule(self, schedule: Schedule) -> SafeString:
        quiet = f"{schedule.cron}, {overview.zone_name(schedule)}" if schedule.every is None else ""
        words = overview.in_words(schedule)
        return format_html('{}<span class="pgj-under">{}</span>', visible(words), visible(quiet))

    @admin.display(description=gettext_lazy("next"))
    def following(self, schedule: Any) -> SafeString | str:
        now = overview.utc(schedule.seen_at)
        if overview.state(schedule) not in ("on", "failing"):
            return "–"
        due = schedule.next_run_at is not None and overview.utc(schedule.next_run_at) <= now
        times = [overview.utc(schedule.next_run_at)] if due else overview.coming(schedule, now, 1)
        if not times:
            return _("never")
        said = _("due since %(when)s") % {"when": relative(times[0], now, 1)} if due else relative(times[0], now)
        there = overview.local(times[0], schedule) if schedule.every is None else times[0]
        return format_html('{}<span class="pgj-under">{}</span>', time_tag(times[0], said), schedule_page.moment(there))

    @admin.display(description=gettext_lazy("last tick"))
    def last(self, schedule: Any) -> SafeString | str:
        if schedule.last_for is None:
            return "–"
        at = overview.utc(schedule.last_for)
        if schedule.last_status is not None:
            label = schedule_page.status_label(schedule.last_status)
            said = format_html(
                '<span class="pgj-badge is-{}">{}</span> {}', schedule.last_status, label, job_link(schedule.last_job)
            )
        else:
            said = format_html("{}", dict(Tick._meta.get_field("outcome").flatchoices).get(schedule.last_outcome, ""))
        when = time_tag(at, relative(at, overview.utc(schedule.seen_at), 1))
        return format_html('{}<span class="pgj-under">{}</span>', said, when)

    @admin.display(description=gettext_lazy("made in"))
    def made(self, schedule: Schedule) -> SafeString | str:
        return _("code") if schedule.source == "code" else _("admin")

    @admin.display(description=gettext_lazy("payload"))
    def shown_payload(self, schedule: Schedule) -> SafeString | str:
        if schedule.payload_from:
            return _("made for each tick by %(function)s") % {"function": visible(schedule.payload_from)}
        if not isinstance(schedule.payload, dict):
            return _("It cannot be read here: nested too deeply, or a number with thousands of digits.")
        handler = registry.find(schedule.kind)
        masker = Masker([schedule.payload], handler.sensitive if handler else ())
        return format_html('<pre class="pgj-json">{}</pre>', masker.document(schedule.payload))


def job_link(job_id: int) -> SafeString:
    """A link to a job's page, which says so when it is gone."""
    return format_html('<a href="{}">#{}</a>', reverse("admin:pgjobs_job_change", args=(job_id,)), job_id)
