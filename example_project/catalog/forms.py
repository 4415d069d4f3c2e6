"""The upload of a price list."""

from __future__ import annotations

from django import forms
from django.core.validators import FileExtensionValidator

from example_project.catalog.models import PriceList


class PriceListForm(forms.ModelForm):  # type: ignore[type-arg]
    """Checks what can be checked at once; the rows are the job's business."""

    file = forms.FileField(
        validators=[FileExtensionValidator(["csv"])], help_text="CSV in UTF-8 with the columns sku, name, price, stock."
    )

    class Meta:
        model = PriceList
        fields = ("file",)
