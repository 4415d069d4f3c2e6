from __future__ import annotations

import dataclasses

from django.apps import AppConfig


class TestAppConfig(AppConfig):
    name = "tests.testapp"
    label = "testapp"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Take the example project's schedules away: workers under test fire what their test declares, and nothing else."""
        from pgjobs.api.registry import registry

        for handler in registry.handlers():
            if handler.schedules and handler.function.__module__.startswith("example_project."):
                registry.remove(handler)
                registry.add(dataclasses.replace(handler, schedules=()))
