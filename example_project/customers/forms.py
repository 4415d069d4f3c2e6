"""Forms of the customers' pages."""

from __future__ import annotations

from django import forms

from example_project.customers.models import Customer
from example_project.customers.reports import bounds


class CustomerForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Customer
        fields = ("name", "email", "city", "wants_digest")


class DigestForm(forms.Form):
    day = forms.DateField(widget=forms.DateInput(attrs={"type": "date"}))


class ReportForm(forms.Form):
    week = forms.CharField(help_text="An ISO week, as in 2026-W49.")

    def clean_week(self) -> str:
        week: str = self.cleaned_data["week"]
        try:
            bounds(week)
        except ValueError as error:
            raise forms.ValidationError(str(error)) from None
        return week
