"""What the shop sells, and the price lists that say so."""

from __future__ import annotations

from django.db import models


class Product(models.Model):
    """One article. The SKU is what suppliers and we agree on, so imports find their rows by it."""

    sku = models.CharField("SKU", max_length=40, unique=True)
    name = models.CharField(max_length=200)
    price = models.DecimalField(max_digits=10, decimal_places=2)
    stock = models.PositiveIntegerField()
    updated_at = models.DateTimeField(auto_now=True, db_index=True)

    class Meta:
        ordering = ("sku",)

    def __str__(self) -> str:
        return f"{self.sku} {self.name}"


class PriceList(models.Model):
    """An uploaded CSV file, and what became of it. Its job may be gone after a week (retention); this row stays."""

    file = models.FileField(upload_to="pricelists/%Y/%m")
    uploaded_at = models.DateTimeField(auto_now_add=True)
    job_id = models.BigIntegerField(null=True, editable=False)
    imported_at = models.DateTimeField(null=True, editable=False)
    imported = models.PositiveIntegerField(null=True, editable=False, help_text="Rows that went into the catalog.")
    bad = models.PositiveIntegerField(null=True, editable=False, help_text="Rows that did not.")
    bad_rows = models.JSONField(default=list, editable=False, help_text="Line and reason of the first of them.")

    class Meta:
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"price list {self.pk}"
