"""The change list of jobs: found and counted by ``store.listing``, never by a scan, however many millions there are."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from django.contrib.admin.views.main import ChangeList
from django.db import connections
from django.db.models import Case, F, IntegerField, Q, QuerySet, TextField, Value, When
from django.db.models.expressions import Func
from django.db.models.functions import Cast, Coalesce, Left, Now
from django.utils.translation import gettext as _

from ..api.registry import registry
from ..models import Job
from ..states import LIVE
from ..store.listing import CAP, WINDOW, Wanted, count, find
from .bases import PaginatorBase
from .filters import FinishedFilter, KindFilter, QueueFilter, StatusFilter
from .moves import MOST

HEAVY = ("payload", "result", "progress", "meta", "last_error", "worker_ids")
"""Columns that a list never loads whole."""


@functools.total_ordering
class Count:
    """A number of rows as far as it was counted: prints as ``1,234``, ``10,000+`` or ``~3,000,000``.

    Not an int: Django would print its digits.
    """

    def __init__(self, number: int, text: str = "") -> None:
        self._number = number
        self._text = text or f"{number:,}"

    def __str__(self) -> str:
        return self._text

    def __index__(self) -> int:
        return self._number

    def __int__(self) -> int:
        return self._number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (int, Count)) and self._number == int(other)

    def __lt__(self, other: int | Count) -> bool:
        return self._number < int(other)

    def __hash__(self) -> int:
        return hash(self._number)


class JobPaginator(PaginatorBase):
    """Pages of a list whose length may be known roughly only. It cuts nothing: pages are found by the list."""

    def __init__(self, reachable: int, per_page: int) -> None:
        super().__init__(range(reachable), per_page)


class JobList(ChangeList):
    """Filters and search say what is wanted; a page is two queries: its ids, by an index, and their rows."""

    wanted: Wanted | None
    """What the filters ask for; None when that cannot exist."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.title = _("Jobs")

    def get_queryset(self, request: Any, exclude_parameters: Any = None) -> QuerySet[Job]:
        """For actions on everything that the filter finds: the first ``MOST`` rows; else the table."""
        self.filter_specs, self.has_filters, rest, _may, self.has_active_filters = self.get_filters(request)
        self.clear_all_filters_qs = self.get_query_string(new_params=rest, remove=list(self.get_filters_params()))
        self.wanted = _wanted(self.filter_specs)
        queryset: QuerySet[Job] = self.root_queryset
        if request.method == "POST" and request.POST.get("select_across") == "1":
            return queryset.filter(pk__in=self.ids(limit=MOST + 1))
        return queryset

    def get_results(self, request: Any) -> None:
        number, estimate = self._count()
        told = Count(number)
        if number > CAP:
            about = max(estimate or 0, number)
            told = Count(about, f"~{about:,}" if estimate is not None and estimate > CAP else f"{CAP:,}+")
        self.paginator = JobPaginator(min(number, CAP), self.list_per_page)
        self.page_num = min(max(self.page_num, 1), self.paginator.num_pages)
        page = self.ids(limit=self.list_per_page, offset=(self.page_num - 1) * self.list_per_page)
        self.result_list = rows(self.root_queryset, page)
        self.result_count = told  # type: ignore[assignment]
        self.full_result_count = told  # type: ignore[assignment]  # the same: the search bar tells no other number
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = number > self.list_per_page

    def get_ordering_field_columns(self) -> dict[int, Any]:
        """None: the order is that of the index that served the list."""
        return {}

    def ids(self, *, limit: int, offset: int = 0) -> list[int]:
        """The ids that filters and search find, in the order of the list."""
        if self.wanted is None:
            return []
        if self.query:
            return self._searched[offset : offset + limit]
        return find(connections[self.root_queryset.db], self.wanted, limit=limit, offset=offset)

    def _count(self) -> tuple[int, int | None]:
        if self.wanted is None:
            return 0, None
        if self.query:
            return len(self._searched), None
        return count(connections[self.root_queryset.db], self.wanted)

    @functools.cached_property
    def _searched(self) -> list[int]:
        """Ids for an exact id, ``kind:key``, or the key of a live job, within the filter. (The key's index knows live ones.)"""
        text = self.query.strip()
        number = text.removeprefix("#")
        branches = [Q(pk=int(number))] if number.isascii() and number.isdecimal() and len(number) < 19 else []
        colons = [at for at, character in enumerate(text) if character == ":"][:3]  # a kind may have some, so may a key
        branches += [Q(kind=text[:at], dedupe_key=text[at + 1 :], status__in=LIVE) for at in colons]
        branches.append(Q(kind__in=registry.kinds(), dedupe_key=text, status__in=LIVE))
        found: list[int] = []
        for branch in branches:  # one query each: together they would have no index
            some = self.root_queryset.filter(branch, _within(self.wanted or Wanted())).order_by("-pk")
            found += some.values_list("pk", flat=True)[:CAP]
        return list(dict.fromkeys(found))

    @property
    def explanation(self) -> list[str]:
        """The order of the list, and what it leaves out."""
        if self.wanted is None or self.query:
            return []
        walked = self.wanted.branches
        live = [status for status in walked if status in LIVE]
        if self.wanted.everything:
            said = [_("The newest first.")]
        elif walked == ("pending",):
            said = [_("In the order in which workers take them, queue by queue.")]
        elif walked == ("reserved",):
            said = [_("The longest running first.")]
        elif not live:
            said = [_("The latest to finish first.")]
        else:
            said = [
                _("Running ones first, then waiting ones as workers take them, then finished ones, the latest first.")
            ]
        if self.result_count > CAP:
            said.append(_("One can page to the first %(cap)s: filter to see the rest.") % {"cap": f"{CAP:,}"})
        windowed = self.wanted.windowed
        if "pending" in windowed:
            said.append(
                _("Of the waiting jobs only the %(n)s that are taken first were looked through.") % {"n": f"{WINDOW:,}"}
            )
        if set(windowed) - {"pending"}:
            said.append(
                _("Of the finished jobs only the latest %(n)s of each status were looked through.")
                % {"n": f"{WINDOW:,}"}
            )
        return said


def rows(queryset: QuerySet[Job], ids: Sequence[int]) -> list[Job]:
    """The jobs of a page in its order, without what is heavy.

    ``error_head`` is the start of the last error; ``secrets_in`` and ``more_secrets_in`` are payload and meta as text, where
    there is an error that may repeat their secrets, and where they are small. ``seen_at`` is the server's time.
    """
    small = Q(payload_size__lte=4000, meta_size__lte=4000)
    failed = Q(last_error__isnull=False)
    page = (
        queryset.filter(pk__in=ids)
        .alias(payload_size=_size("payload"), meta_size=_size("meta"))
        .annotate(
            seen_at=Now(),
            error_head=Left("last_error", 2000),
            secrets_in=Case(When(failed & small, then=Cast(F("payload"), TextField()))),
            more_secrets_in=Case(When(failed & small, then=Cast(F("meta"), TextField()))),
        )
        .defer(*HEAVY)
    )
    place = {id_: n for n, id_ in enumerate(ids)}
    return sorted(page, key=lambda job: place[job.pk])


def _size(column: str) -> Func:
    """Bytes that a value takes as it is stored; read without unpacking it."""
    return Coalesce(Func(F(column), function="pg_column_size", output_field=IntegerField()), Value(0))


def _wanted(specs: Sequence[Any]) -> Wanted | None:
    statuses: tuple[str, ...] | None = ()
    kind = queue = ""
    age = None
    for spec in specs:
        if isinstance(spec, StatusFilter):
            statuses = spec.statuses
        elif isinstance(spec, KindFilter):
            kind = spec.wanted
        elif isinstance(spec, QueueFilter):
            queue = spec.wanted
        elif isinstance(spec, FinishedFilter):
            age = spec.age
    if statuses is None or "\x00" in kind + queue:
        return None
    return Wanted(statuses, kind, queue, age)


def _within(wanted: Wanted) -> Q:
    """The filter as conditions, for the few rows of a search."""
    condition = Q()
    if wanted.statuses:
        condition &= Q(status__in=wanted.statuses)
    if wanted.kind:
        condition &= Q(kind=wanted.kind)
    if wanted.queue:
        condition &= Q(queue=wanted.queue)
    if wanted.finished_within is not None:
        condition &= Q(finished_at__gte=Now() - wanted.finished_within)
    return condition
