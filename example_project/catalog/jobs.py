"""Background work for the catalog."""

from __future__ import annotations

from itertools import islice
from typing import Any

from django.utils import timezone

from example_project.catalog.models import PriceList, Product
from example_project.catalog.pricelist import BadRow, PriceListError, Row, read
from pgjobs import Cancel, Fail, JobContext, job

BATCH = 1_000
"""Rows of one statement: enough to be fast, few enough to say how far we are and to notice a cancel."""

SHOWN = 100
"""Bad rows that are kept with their reason; a file that is wrong throughout would fill the database with it."""


@job(timeout=600, max_attempts=3, discard_on=(PriceList.DoesNotExist,))
def import_products(ctx: JobContext, price_list_id: int) -> dict[str, int]:
    """Import a price list: each good row becomes a product, or renews the one of its SKU; bad rows are written down.

    Idempotent, because it is an upsert: a run that died in the middle leaves products that the next run writes again,
    with the same values. So the batches need no transaction around all of them, which would hold 20,000 row locks to
    the end.

    A bad *row* is the expected case, part of the result. A file that is no price list is `Fail`: it ends the job at
    once, for the same file will not be better in the next attempt. Anything else that is raised (the disk, the
    database) is worth an attempt more, and gets it by not being caught.
    """
    price_list = PriceList.objects.get(pk=price_list_id)
    bad: list[BadRow] = []
    imported = 0
    try:
        with open(price_list.file.path, "rb") as file:
            total = max(sum(1 for _ in file) - 1, 0)  # near enough for progress: a quoted cell may span lines
        with open(price_list.file.path, encoding="utf-8-sig", newline="") as lines:
            rows = read(lines)
            while batch := list(islice(rows, BATCH)):
                if ctx.cancelled:  # by a person in the admin; what is imported stays, which does no harm
                    raise Cancel(f"after {imported:,} rows")
                imported += upsert([row for row in batch if isinstance(row, Row)])
                bad += [row for row in batch if isinstance(row, BadRow)]
                ctx.progress(imported + len(bad), total, f"{imported:,} products imported, {len(bad)} bad rows")
    except PriceListError as error:
        raise Fail(f"{price_list.file.name} is not a price list: {error}") from error
    remember(price_list, imported, bad)
    return {"imported": imported, "bad": len(bad)}


def upsert(rows: list[Row]) -> int:
    """Store rows of different SKUs by one `INSERT … ON CONFLICT (sku) DO UPDATE`; how many.

    They go in sorted, so that two imports at the same time take their row locks in the same order and cannot deadlock.
    """
    now = timezone.now()
    Product.objects.bulk_create(
        [
            Product(sku=row.sku, name=row.name, price=row.price, stock=row.stock, updated_at=now)
            for row in sorted(rows, key=lambda row: row.sku)
        ],
        update_conflicts=True,
        unique_fields=["sku"],
        update_fields=["name", "price", "stock", "updated_at"],
    )
    return len(rows)


def remember(price_list: PriceList, imported: int, bad: list[BadRow]) -> None:
    """Write the outcome on the price list, where people look for it also when the job is long gone."""
    shown: list[dict[str, Any]] = [{"line": row.line, "reason": row.reason} for row in bad[:SHOWN]]
    PriceList.objects.filter(pk=price_list.pk).update(
        imported=imported, bad=len(bad), bad_rows=shown, imported_at=timezone.now()
    )
