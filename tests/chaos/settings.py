"""Settings of the chaos test's processes. The server is the test's own: DATABASE_URL is set by ``__main__``."""

import environ

env = environ.Env()

DATABASES = {"default": env.db("DATABASE_URL")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "chaos"  # noqa: S105
USE_TZ = True
INSTALLED_APPS = ["pgjobs", "tests.chaos"]

PGJOBS = {
    "LEASE": 6,
    "HEARTBEAT": 2,
    "WATCHDOG": 4.5,
    "GRACE": 3,
    "TIMEOUT_GRACE": 1,
    "POLL_INTERVAL": 0.5,
    "LISTEN_POLL_INTERVAL": 5,
    "ASYNC_CONCURRENCY": 20,
    "BACKOFF": {"base": 0.2, "cap": 2, "jitter": 0.2},
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"times": {"format": "%(created).3f %(process)d %(levelname)s %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "times"}},
    "loggers": {"pgjobs": {"handlers": ["stderr"], "level": "INFO"}},
}
