"""The admin of jobs: a list, a page for each, and buttons that call the verbs of the store."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.options import ShowFacets
from django.contrib.admin.utils import unquote
from django.core.exceptions import BadRequest, PermissionDenied
from django.db import connections, transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import get_settings
from ..models import Job
from . import detail, moves
from .bases import JobBase
from .buttons import buttons
from .columns import Columns, badge
from .filters import FinishedFilter, KindFilter, QueueFilter, StatusFilter
from .listing import HEAVY, JobList
from .moves import MOST, MOVES
from .wording import visible


def is_id(text: str) -> bool:
    """Whether a text is a number that an id can be."""
    return text.isascii() and text.isdecimal() and len(text) <= 18


def outside_transactions(view: Any) -> Any:
    """With ATOMIC_REQUESTS too, a view commits its moves batch by batch: thousands of rows are not held at once."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return view


@admin.register(Job)
class JobAdmin(Columns, JobBase):
    """Read-only; the moves are actions of the list and buttons of a job's page, each with its own permission."""

    list_display = ("status_badge", "name", "in_queue", "tries", "created", "when")
    list_display_links = ("name",)
    list_filter = (StatusFilter, KindFilter, QueueFilter, FinishedFilter)
    list_per_page = 50
    list_select_related = False
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    sortable_by = ()
    ordering = ("-id",)
    search_fields = ("id",)  # shows the search bar; JobList does the search
    search_help_text = gettext_lazy("An id, or the dedupe key of a waiting or running job: key, or kind:key.")
    actions = ("retry_now", "cancel", "bury", "prune")
    FILTERS: ClassVar = frozenset({"status", "kind", "queue", "finished"})

    class Media:
        css: ClassVar = {"all": ("pgjobs/admin.css",)}
        js = ("pgjobs/admin.js",)

    # Who may what. Django's own add, change and delete are off: they would bypass the verbs.

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._may(request, "view_job") or self._may(request, "change_job")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "retry_job")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "cancel_job")

    def has_prune_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "delete_job")

    def _may(self, request: HttpRequest, codename: str) -> bool:
        return bool(request.user.has_perm(f"{self.opts.app_label}.{codename}"))

    # What is read.

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        """The rows of the queue's own database (never a replica), without what is heavy."""
        return Job._default_manager.using(get_settings().DATABASE).defer(*HEAVY)

    def action_checkbox(self, obj: Job) -> SafeString:
        """Django's, whose label has the name of the job."""
        return mark_safe(visible(super().action_checkbox(obj)))  # noqa: S308 - safe before, and escapes add no markup

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[JobList]:
        return JobList

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        """Nothing but the filters: other lookups would scan, and could guess at payloads letter by letter."""
        return lookup in self.FILTERS

    def get_urls(self) -> list[Any]:
        move = path(
            "<int:job_id>/move/<slug:name>/", self.admin_site.admin_view(self.move_view), name="pgjobs_job_move"
        )
        return [move, *super().get_urls()]

    @outside_transactions
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponseBase:
        if request.method == "POST":
            for name in request.POST.getlist("action"):
                if name in MOVES and not self._may(request, MOVES[name].permission):
                    raise PermissionDenied
            if not all(map(is_id, request.POST.getlist(ACTION_CHECKBOX_NAME))):
                raise BadRequest
            return super().changelist_view(request, extra_context)
        surroundings = {"warnings": detail.surroundings(get_settings())}
        return super().changelist_view(request, {**surroundings, **(extra_context or {})})

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The page of one job. There is no form: what is posted here is refused."""
        if request.method not in ("GET", "HEAD") or not self.has_view_permission(request):
            raise PermissionDenied
        job = self.get_object(request, unquote(object_id))
        secrets_allowed = self._may(request, "view_payload")
        shown = None
        if job is not None:
            shown = detail.read(self.get_queryset(request), job, secrets_allowed=secrets_allowed)
        if job is None or shown is None:
            return self._gone(request, object_id)
        request.current_app = self.admin_site.name
        title = visible(str(job))
        context = {
            **self.admin_site.each_context(request),
            "title": title,
            "subtitle": None,
            "original": title,
            "opts": self.opts,
            "media": self.media,
            "add": False,
            "change": True,
            "is_popup": False,
            "has_view_permission": True,
            "shown": shown,
            "badge": badge(job),
            "buttons": buttons(job, shown.now, lambda codename: self._may(request, codename)),
            "secrets_allowed": secrets_allowed,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/pgjobs/job/detail.html", context)

    @outside_transactions
    def move_view(self, request: HttpRequest, job_id: int, name: str) -> HttpResponse:
        """One button of a job's page."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        if name not in MOVES or not self.has_view_permission(request) or not self._may(request, MOVES[name].permission):
            raise PermissionDenied
        if not is_id(str(job_id)) or not self._existing(request, [job_id]):
            return self._gone(request, str(job_id))
        report = moves.run(MOVES[name], [job_id], request.user, bulk=False)
        self._tell(request, report)
        if name == "prune" and report.moved:
            return self._to_list()
        return HttpResponseRedirect(
            reverse("admin:pgjobs_job_change", args=(job_id,), current_app=self.admin_site.name)
        )

    def _gone(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What is said of a job that was deleted meanwhile, or never was."""
        text = _("Job #%(id)s is not there any more. Perhaps its time was up, or somebody deleted it.")
        self.message_user(request, text % {"id": visible(object_id)[:40]}, messages.WARNING)
        return self._to_list()

    def _to_list(self) -> HttpResponse:
        return HttpResponseRedirect(reverse("admin:pgjobs_job_changelist", current_app=self.admin_site.name))

    # The actions of the list.

    @admin.action(permissions=["retry"], description=gettext_lazy("Retry now"))
    def retry_now(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._run("retry_now", request, queryset)

    @admin.action(permissions=["cancel"], description=gettext_lazy("Cancel"))
    def cancel(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._run("cancel", request, queryset)

    @admin.action(permissions=["cancel"], description=gettext_lazy("Move to dead letters"))
    def bury(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._run("bury", request, queryset)

    @admin.action(permissions=["prune"], description=gettext_lazy("Delete finished"))
    def prune(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        self._run("prune", request, queryset)

    def _run(self, name: str, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """Ids first, then the verb: the filter is never asked again once rows have moved."""
        if request.POST.get("select_across") == "1":
            found = list(queryset.values_list("pk", "status")[: MOST + 1])
            # Who selects everything wants the failures retried, not each mail of last week sent again.
            careful = name == "retry_now" and request.GET.get("status") != "done"
            spared = [pk for pk, status in found[:MOST] if careful and status == "done"]
            ids = [pk for pk, status in found[:MOST] if not (careful and status == "done")]
            self._tell(request, moves.run(MOVES[name], ids, request.user, spared=spared))
            if len(found) > MOST:
                text = _("These were the first %(n)s of the list: run the action again, or filter, for the next ones.")
                self.message_user(request, text % {"n": f"{MOST:,}"}, messages.WARNING)
            return
        asked = {int(text) for text in request.POST.getlist(ACTION_CHECKBOX_NAME)}
        chosen = self._existing(request, asked)
        self._tell(request, moves.run(MOVES[name], chosen, request.user, gone=len(asked) - len(chosen)))

    def _existing(self, request: HttpRequest, ids: Iterable[int]) -> list[int]:
        """Those of the ids that this user may see and that are still there."""
        return list(self.get_queryset(request).filter(pk__in=list(ids)).values_list("pk", flat=True))

    def _tell(self, request: HttpRequest, report: moves.Report) -> None:
        level = messages.SUCCESS if not report.skipped else messages.WARNING if report.moved else messages.ERROR
        self.message_user(request, report.text, level)
