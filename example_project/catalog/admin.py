"""Products and price lists in the admin."""

from __future__ import annotations

from django.contrib import admin

from example_project.catalog.models import PriceList, Product


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("sku", "name", "price", "stock", "updated_at")
    search_fields = ("sku", "name")


@admin.register(PriceList)
class PriceListAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ("id", "file", "uploaded_at", "imported_at", "imported", "bad")
    readonly_fields = ("file", "uploaded_at", "job_id", "imported_at", "imported", "bad", "bad_rows")
