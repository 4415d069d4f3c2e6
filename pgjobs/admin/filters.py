"""The filters of the list. They only say what is wanted; ``store.listing`` knows how to find it without a scan."""

from __future__ import annotations

import datetime as dt
from typing import Any, ClassVar

from django.contrib.admin import SimpleListFilter
from django.db import connections
from django.utils.translation import gettext_lazy as _

from ..api.registry import registry
from ..conf import get_settings
from ..states import DEAD_LETTERS, Status
from ..store.listing import names
from .wording import visible

Choices = list[tuple[Any, Any]]


class _Filter(SimpleListFilter):
    """A filter that leaves the queryset to the list, and that accepts values beside its choices."""

    def queryset(self, request: Any, queryset: Any) -> None:
        return None

    def has_output(self) -> bool:
        return True

    @property
    def wanted(self) -> str:
        return str(self.value() or "")


class StatusFilter(_Filter):
    """By status; dead letters are dead and failed ones together."""

    title = _("status")
    parameter_name = "status"
    DEAD: ClassVar[str] = "dead_letters"

    def lookups(self, request: Any, model_admin: Any) -> Choices:
        return [(self.DEAD, _("Dead letters (dead or failed)")), *Status.choices]

    @property
    def statuses(self) -> tuple[str, ...] | None:
        """The statuses wanted (none: all); None for a value that is no status."""
        if not self.wanted:
            return ()
        if self.wanted == self.DEAD:
            return tuple(status.value for status in DEAD_LETTERS)
        return (self.wanted,) if self.wanted in Status.values else None


class KindFilter(_Filter):
    """By kind: those with a handler here, those of finished jobs, and whatever was asked for."""

    title = _("kind")
    parameter_name = "kind"

    def lookups(self, request: Any, model_admin: Any) -> Choices:
        return _choices({*registry.kinds(), *_names(request)[0], self.wanted})


class QueueFilter(_Filter):
    """By queue: declared ones, those of handlers and of pending jobs, and whatever was asked for."""

    title = _("queue")
    parameter_name = "queue"

    def lookups(self, request: Any, model_admin: Any) -> Choices:
        declared = {*(get_settings().QUEUES or ()), *(handler.queue for handler in registry.handlers())}
        return _choices({*declared, *_names(request)[1], self.wanted})


class FinishedFilter(_Filter):
    """By how long ago a job ended."""

    title = _("finished within")
    parameter_name = "finished"
    AGES: ClassVar[dict[str, dt.timedelta]] = {
        "hour": dt.timedelta(hours=1),
        "day": dt.timedelta(days=1),
        "week": dt.timedelta(days=7),
    }

    def lookups(self, request: Any, model_admin: Any) -> Choices:
        return [("hour", _("The last hour")), ("day", _("The last 24 hours")), ("week", _("The last 7 days"))]

    @property
    def age(self) -> dt.timedelta | None:
        return self.AGES.get(self.wanted)


def _choices(found: set[str]) -> Choices:
    return [(name, visible(name)) for name in sorted(found - {""})]


def _names(request: Any) -> tuple[list[str], list[str]]:
    """Kinds and queues that rows have, read once a request."""
    if not hasattr(request, "_pgjobs_names"):
        request._pgjobs_names = names(connections[get_settings().DATABASE])
    found: tuple[list[str], list[str]] = request._pgjobs_names
    return found
