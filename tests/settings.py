"""Settings of the test suite: pgjobs, what its admin needs, and the tests' own app."""

from importlib.util import find_spec
from pathlib import Path

import django
import environ

from example_project import devpg

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
environ.Env.read_env(BASE_DIR / ".env")
devpg.provide(BASE_DIR)

DATABASES = {
    "default": env.db("DATABASE_URL"),
    "other": env.db("DATABASE_URL") | {"TEST": {"MIRROR": "default"}},  # for tests that ask for it: another alias
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "tests"  # noqa: S105
USE_TZ = True
TIME_ZONE = "UTC"
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "example_project.urls"
STATIC_URL = "/static/"

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
    *(["tests.testapp"] if find_spec("tests.testapp") else []),
]

MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
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

# What the example project asks for; its tests give it directories and a CRM of their own.
VAR_DIR = BASE_DIR / "var"
REPORTS_DIR = VAR_DIR / "reports"
CRM_URL = "http://127.0.0.1:1/crm/"  # nobody is there
CRM_TIMEOUT = 5.0
CRM_MAX_ATTEMPTS = 4
CRM_RETRY_BASE = 0.25

if django.VERSION >= (6, 1):
    MAILERS = {"default": {"BACKEND": "django.core.mail.backends.locmem.EmailBackend"}}
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # the default one takes its time, on purpose
