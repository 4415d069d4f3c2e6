from __future__ import annotations

from django.apps import AppConfig


class BenchConfig(AppConfig):
    name = "tests.bench"
    label = "bench"
