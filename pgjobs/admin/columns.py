"""The cells of the list of jobs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..api.registry import registry
from ..models import Job
from ..states import Status
from .detail import UNREADABLE, parse
from .masking import Masker
from .wording import first_line, relative, span, time_tag, visible


class Columns:
    """What ``list_display`` shows of a row that ``listing.rows`` read."""

    @admin.display(description=gettext_lazy("status"))
    def status_badge(self, job: Job) -> SafeString:
        return badge(job)

    @admin.display(description=gettext_lazy("job"))
    def name(self, job: Job) -> SafeString:
        return format_html('<bdi class="pgj-kind">{}</bdi> <span class="pgj-id">#{}</span>', visible(job.kind), job.pk)

    @admin.display(description=gettext_lazy("queue"))
    def in_queue(self, job: Job) -> SafeString:
        return format_html("<bdi>{}</bdi>", visible(job.queue))

    @admin.display(description=gettext_lazy("attempts"))
    def tries(self, job: Job) -> str:
        return f"{job.attempts}/{job.max_attempts}"

    @admin.display(description=gettext_lazy("created"))
    def created(self, job: Any) -> SafeString:
        return time_tag(job.created_at, relative(job.created_at, job.seen_at, 1))

    @admin.display(description=gettext_lazy("due or ended"))
    def when(self, job: Any) -> SafeString | str:
        if job.finished_at is not None:
            return time_tag(job.finished_at, relative(job.finished_at, job.seen_at, 1))
        if job.status == Status.PENDING:
            said = _("due %(when)s") if job.run_after > job.seen_at else _("due since %(span)s")
            words = {"when": relative(job.run_after, job.seen_at, 1), "span": span(job.seen_at - job.run_after, 1)}
            return time_tag(job.run_after, said % words)
        return _("running")

    @admin.display(description=gettext_lazy("run time"))
    def took(self, job: Any) -> str:
        if job.last_attempted_at is None or job.status == Status.PENDING:
            return ""
        return span((job.finished_at or job.seen_at) - job.last_attempted_at)

    @admin.display(description=gettext_lazy("last error"))
    def error(self, job: Any) -> SafeString | str:
        """The class, and the first line unless the payload is too large to know whether that repeats a secret."""
        if not job.error_head:
            return ""
        documents = [parse(job.secrets_in), parse(job.more_secrets_in)]
        handler = registry.find(job.kind)
        masker = Masker(documents, handler.sensitive if handler else ())
        known = job.secrets_in is not None and UNREADABLE not in documents
        return format_html(
            '<span class="pgj-error"><b>{}</b> {}</span>',
            masker.text(job.error_class or "").rpartition(".")[2],
            first_line(masker.text(job.error_head)) if known else "…",
        )


def badge(job: Job) -> SafeString:
    """The status in its colour; a pending one that waits for its time, and a cancel request, show."""
    try:
        label = str(Status(job.status).label)
    except ValueError:
        label = visible(job.status)
    if job.status == Status.RESERVED and job.cancel_requested_at is not None:
        label = _("Stopping")
    return format_html('<span class="pgj-badge is-{}">{}</span>', job.status, label)
