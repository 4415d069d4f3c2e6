"""The weekly figures: which moments a week spans, what is counted, and the file."""

from __future__ import annotations

import csv
import datetime as dt
import re
import tempfile
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.utils import timezone

from example_project.catalog.models import PriceList, Product
from example_project.customers.models import Customer, DigestMail


def this_week() -> str:
    """The ISO week of today, in the shop's time zone."""
    return f"{timezone.localdate():%G-W%V}"


def week_before(scheduled_for: dt.datetime) -> dict[str, str]:
    """The payload of a scheduled report: the ISO week that ended before its nominal time, however late it runs."""
    return {"week": f"{timezone.localdate(scheduled_for) - dt.timedelta(days=7):%G-W%V}"}


def bounds(week: str) -> tuple[dt.datetime, dt.datetime]:
    """The first moment of an ISO week, and that of the next, in the shop's time zone. Raises ValueError."""
    if not (match := re.fullmatch(r"(\d{4})-W(\d{2})", week)):
        raise ValueError(f"{week!r} is no ISO week; one looks like 2026-W49")
    monday = dt.date.fromisocalendar(int(match[1]), int(match[2]), 1)
    start, end = (
        timezone.make_aware(dt.datetime.combine(day, dt.time.min)) for day in (monday, monday + dt.timedelta(days=7))
    )
    return start, end


def count(start: dt.datetime, end: dt.datetime) -> dict[str, int]:
    """What happened from `start` until before `end`: the columns of WeeklyReport, and of the file."""
    week = (start, end)
    return {
        "new_users": _within(get_user_model().objects.all(), "date_joined", week),
        "new_customers": _within(Customer.objects.all(), "created_at", week),
        "synced_customers": _within(Customer.objects.all(), "crm_synced_at", week),
        "digest_mails": _within(DigestMail.objects.all(), "sent_at", week),
        "price_lists": _within(PriceList.objects.all(), "imported_at", week),
        "products_changed": _within(Product.objects.all(), "updated_at", week),
    }


def _within(rows: QuerySet[Any], field: str, week: tuple[dt.datetime, dt.datetime]) -> int:
    return rows.filter(**{f"{field}__gte": week[0], f"{field}__lt": week[1]}).count()


def file_of(week: str) -> Path:
    """Where the file of a week lies."""
    return Path(settings.REPORTS_DIR) / f"{week}.csv"


def write_file(week: str, figures: dict[str, int]) -> Path:
    """Write the file whole or not at all, also when two workers write it at the same time."""
    target = file_of(week)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=target.parent, suffix=".tmp", newline="", delete=False) as file:
        writer = csv.writer(file)
        writer.writerow(["week", *figures])
        writer.writerow([week, *figures.values()])
    return Path(file.name).replace(target)
