"""Registration of a buyer."""

from __future__ import annotations

from django import forms
from django.contrib.auth.forms import UserCreationForm
from django.contrib.auth.models import User


class RegistrationForm(UserCreationForm):  # type: ignore[type-arg]  # not subscriptable at run time
    """Django's own form, and the address that the welcome mail goes to."""

    email = forms.EmailField(help_text="The welcome mail goes there.")

    class Meta:
        model = User
        fields = ("username", "email")
