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
from .masking import Masker, parse
from .wording import first_line, relative, span, time_tag, visible, without_class


class Columns:
    """What ``list_display`` shows of a row that ``listing.rows`` read."""

    @admin.display(description=gettext_lazy("status"))
    def status_badge(self, job: Job) -> SafeString:
        return badge(job)

    @admin.display(description=gettext_lazy("job and last error"))
    def name(self, job: Any) -> SafeString:
        return format_html(
            '<bdi class="pgj-kind">{}</bdi> <span class="pgj-id">#{}</span>{}', visible(job.kind), job.pk, _error(job)
        )

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
    def when(self, job: Any) -> SafeString:
        """When it is due, since when it runs, or when it ended; and how long that took."""
        if job.status == Status.PENDING:
            said = _("due %(when)s") if job.run_after > job.seen_at else _("due since %(span)s")
            words = {"when": relative(job.run_after, job.seen_at, 1), "span": span(job.seen_at - job.run_after, 1)}
            return time_tag(job.run_after, said % words)
        if job.finished_at is None:
            since = job.last_attempted_at or job.updated_at
            return time_tag(since, _("running for %(span)s") % {"span": span(job.seen_at - since, 1)})
        ended = time_tag(job.finished_at, relative(job.finished_at, job.seen_at, 1))
        if job.last_attempted_at is None:
            return ended
        took = _("ran %(span)s") % {"span": span(job.finished_at - job.last_attempted_at)}
        return format_html('{} <span class="pgj-quiet">{}</span>', ended, took)


def _error(job: Any) -> SafeString | str:
    """The class, and the first line unless the payload is too large to know whether that repeats a secret."""
    if not job.error_head:
        return ""
    handler = registry.find(job.kind)
    masker = Masker(map(parse, (job.secrets_in, job.more_secrets_in)), handler.sensitive if handler else ())
    return format_html(
        ' <span class="pgj-error"><b>{}</b> {}</span>',
        masker.text(job.error_class or "").rpartition(".")[2],
        without_class(first_line(masker.text(job.error_head)), job.error_class or "")
        if job.secrets_in is not None
        else "…",
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
