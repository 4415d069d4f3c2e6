"""A project for the backends of django.tasks; BENCH_BACKEND says which."""

import os
from importlib.util import find_spec

BACKENDS = {
    "django_tasks_db": "django_tasks_db.DatabaseBackend",
    "django_ox": "django_ox.backend.OxBackend",
}
app = os.environ["BENCH_BACKEND"]

SECRET_KEY = "bench"  # noqa: S105
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [app, *([] if find_spec("django.tasks") else ["django_tasks"])]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["BENCH_HOST"],
        "PORT": "5432",
        "USER": "postgres",
        "NAME": os.environ["BENCH_DATABASE"],
        "CONN_MAX_AGE": None if os.environ.get("BENCH_SETTING") == "tuned" else 0,
    }
}
TASKS = {"default": {"BACKEND": BACKENDS[app]}}
LOGGING_CONFIG = None
