"""The Django app: autodiscovery of handlers, and nothing that touches the database."""

from __future__ import annotations

from django.apps import AppConfig
from django.utils.module_loading import autodiscover_modules
from django.utils.translation import gettext_lazy as _


class PgjobsConfig(AppConfig):
    """``"pgjobs"`` in ``INSTALLED_APPS``."""

    name = "pgjobs"
    verbose_name = _("Background jobs")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the checks, and import the ``jobs`` module of every app."""
        from . import checks  # noqa: F401 - registers them

        autodiscover_modules("jobs")
