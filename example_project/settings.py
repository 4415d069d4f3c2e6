"""Settings of the example project: a small site that shows pgjobs at work. Not a template for production."""

from pathlib import Path

import django
import environ

from example_project import devpg

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
environ.Env.read_env(BASE_DIR / ".env")

VAR_DIR = Path(env.str("VAR_DIR", default=str(BASE_DIR / "var")))  # what the site writes; ignored by git

DEBUG = env.bool("DEBUG", default=True)
SECRET_KEY = env.str("SECRET_KEY", default="for-development-only-and-long-enough-to-satisfy-the-checks")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["127.0.0.1", "localhost"])

devpg.provide(BASE_DIR)  # DATABASE_URL, if the environment has none
DATABASES = {"default": env.db("DATABASE_URL")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "pgjobs",
    "example_project.backoffice",
    "example_project.accounts",
    "example_project.catalog",
    "example_project.customers",
    "example_project.demo",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
MEDIA_ROOT = VAR_DIR / "media"
MEDIA_URL = "media/"

DEFAULT_FROM_EMAIL = "The shop <office@shop.example>"
MAIL_DIR = VAR_DIR / "mail"  # made when the first mail is sent
if django.VERSION >= (6, 1):
    MAILERS = {
        "default": {
            "BACKEND": "django.core.mail.backends.filebased.EmailBackend",
            "OPTIONS": {"file_path": MAIL_DIR},
        },
    }
else:
    EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    EMAIL_FILE_PATH = MAIL_DIR

REPORTS_DIR = VAR_DIR / "reports"

# The CRM of example_project/customers. By default it is the stand-in that this site serves itself, example_project/crm.
CRM_URL = env.str("CRM_URL", default="http://127.0.0.1:8000/crm/")
CRM_TIMEOUT = 5.0  # seconds for each read and write on the connection
# Shortened, so that the demo sees a job succeed in its third attempt, and one give up, within seconds. For a real CRM
# leave out both: the defaults are 10 attempts, 10 seconds to 85 minutes apart, over about three hours.
CRM_MAX_ATTEMPTS = 4
CRM_RETRY_BASE = 0.25  # seconds; each failed attempt doubles it: 0.5, 1, 2

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "{asctime} {levelname:<7} {name}: {message}", "style": "{"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    "loggers": {
        "pgjobs": {"handlers": ["console"], "level": env.str("PGJOBS_LOG_LEVEL", default="INFO"), "propagate": False},
    },
}
