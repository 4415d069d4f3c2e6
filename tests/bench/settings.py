"""Settings of the measured processes: pgjobs at its defaults. The server is the run's own; DATABASE_URL is set by ``rig``."""

import environ

env = environ.Env()

DATABASES = {"default": env.db("DATABASE_URL")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "bench"  # noqa: S105
USE_TZ = True
INSTALLED_APPS = ["pgjobs", "tests.bench"]

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"stderr": {"class": "logging.StreamHandler"}},
    "loggers": {"pgjobs": {"handlers": ["stderr"], "level": "WARNING"}},
}
