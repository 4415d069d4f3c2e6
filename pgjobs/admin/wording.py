"""Times and texts as a person reads them."""

from __future__ import annotations

import datetime as dt

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

# What could reorder, hide or break the text around it: controls, bidirectional marks, line separators, zero widths.
_UNSEEN = {
    code: f"\\u{code:04x}"
    for code in (
        *(c for c in range(0x20) if chr(c) not in "\n\t"),
        *range(0x7F, 0xA0),
        0x061C,
        0x200B,
        *range(0x200E, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
        0xFEFF,
    )
}


def visible(text: str) -> str:
    """The text with unseen characters written as escapes (newlines and tabs stay)."""
    return text.replace("\r\n", "\n").translate(_UNSEEN)


def first_line(text: str, most: int = 160) -> str:
    """The first line that says anything, cut at ``most`` characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= most else line[: most - 1] + "…"


def without_class(line: str, error_class: str) -> str:
    """The line of an error beside which its class stands already: ``boom`` of ``ValueError: boom``."""
    name, colon, rest = line.partition(":")
    return rest.strip() if colon and rest.strip() and name == error_class.rpartition(".")[2] else line


def span(length: dt.timedelta, units: int = 2) -> str:
    """A duration in short: ``350 ms``, ``12 s``, ``4 min 10 s``, ``2 h 5 min``, ``3 d 4 h``; roughly with one unit."""
    seconds = abs(length.total_seconds())
    if seconds < 1:
        return _("%(n)d ms") % {"n": round(seconds * 1000)}
    if seconds < 10 and seconds != int(seconds):
        return _("%(n).1f s") % {"n": seconds}
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    named = [(days, _("%(n)d d")), (h, _("%(n)d h")), (m, _("%(n)d min")), (s, _("%(n)d s"))]
    return " ".join(form % {"n": n} for n, form in _two_largest(named)[:units])


def words(length: dt.timedelta) -> str:
    """A duration in words: ``12 seconds``, ``4 minutes``, ``2 hours 5 minutes``, ``3 days``."""
    seconds = round(abs(length.total_seconds()))
    minutes, s = divmod(seconds, 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if seconds < 1:
        return _("less than a second")
    named = [
        (days, ngettext("%(n)d day", "%(n)d days", days)),
        (h, ngettext("%(n)d hour", "%(n)d hours", h)),
        (m, ngettext("%(n)d minute", "%(n)d minutes", m)),
        (s, ngettext("%(n)d second", "%(n)d seconds", s)),
    ]
    parts = _two_largest(named)
    if days >= 3 or (minutes >= 3 and not (hours or days)):
        parts = parts[:1]
    return " ".join(form % {"n": n} for n, form in parts)


def _two_largest(named: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The first unit that is not zero, and the next one unless it is."""
    first = next((i for i, (n, _form) in enumerate(named) if n), len(named) - 1)
    return [named[first], *((n, form) for n, form in named[first + 1 : first + 2] if n)]


def clock(moment: dt.datetime, now: dt.datetime) -> str:
    """A time in a sentence: ``03:12 UTC`` today, with the day on others."""
    local, today = _local(moment), _local(now)
    shape = "H:i:s" if abs(moment - now) < dt.timedelta(minutes=10) else "H:i"
    if local.date() != today.date():
        shape = "j M Y, " + shape
    return f"{date_format(local, shape)} {local.tzname() or ''}".strip()


def full(moment: dt.datetime) -> str:
    """A time to the second, with its day and zone."""
    local = _local(moment)
    return f"{date_format(local, 'j M Y, H:i:s')} {local.tzname() or ''}".strip()


def relative(moment: dt.datetime, now: dt.datetime, units: int = 2) -> str:
    """How far away a time is: ``in 4 min``, ``12 s ago``, ``just now``."""
    distance = dt.timedelta(seconds=int(abs((moment - now).total_seconds())))
    if not distance:
        return _("just now")
    return (_("in %(span)s") if moment > now else _("%(span)s ago")) % {"span": span(distance, units)}


def time_tag(moment: dt.datetime, text: str) -> SafeString:
    """``text`` in a ``<time>`` that tells the full time when pointed at."""
    return format_html('<time datetime="{}" title="{}">{}</time>', moment.isoformat(), full(moment), text)


def _local(moment: dt.datetime) -> dt.datetime:
    return timezone.localtime(moment) if timezone.is_aware(moment) else moment
