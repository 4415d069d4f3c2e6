"""Use an installed pgjobs as a new project would: INSTALLED_APPS, migrate, enqueue, run_jobs, look.

Run by an environment with the development tools. Usage: smoke.py PYTHON, the interpreter of a clean environment with
the wheel and psycopg in it; that one sees nothing of this checkout.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(CHECKOUT))

from example_project import devpg  # noqa: E402

FILES = {
    "manage.py": """
import os, sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
""",
    "settings.py": """
import os
SECRET_KEY = "smoke"
USE_TZ = True
INSTALLED_APPS = ["django.contrib.contenttypes", "django.contrib.auth", "pgjobs", "shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "smoke", "USER": "postgres"}}
DATABASES["default"]["HOST"] = os.environ["SMOKE_HOST"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
""",
    "shop/__init__.py": "",
    "shop/jobs.py": """
from pgjobs import job

@job
def greet(name: str) -> str:
    return f"Hello, {name}"
""",
    "enqueue.py": """
import django; django.setup()
from django.db import transaction
from shop.jobs import greet
with transaction.atomic():
    print(greet.enqueue(name="world").action)
""",
    "look.py": """
import sys
import django; django.setup()
import pgjobs
from pgjobs.models import Job
assert pgjobs.__file__.startswith(sys.prefix), pgjobs.__file__
job = Job.objects.get()
print(job.kind, job.status, job.attempts, job.result)
""",
}

url = devpg.ensure(CHECKOUT)
with psycopg.connect(url, autocommit=True) as connection:
    connection.execute("DROP DATABASE IF EXISTS smoke (FORCE)")
    connection.execute("CREATE DATABASE smoke")
    host = connection.info.host

with tempfile.TemporaryDirectory() as directory:
    for name, text in FILES.items():
        path = Path(directory, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("DATABASE_URL", "PYTHONPATH"))}
    env |= {"SMOKE_HOST": host, "DJANGO_SETTINGS_MODULE": "settings"}

    def run(*args: str) -> str:
        command = [sys.argv[1], "-W", "error", *args]
        done = subprocess.run(
            command, cwd=directory, env=env, stdout=subprocess.PIPE, text=True, timeout=120, check=True
        )
        print("$ python", *args, "\n" + done.stdout.strip())
        return done.stdout.strip()

    run("manage.py", "migrate", "--verbosity", "0")
    assert run("enqueue.py") == "created"
    run("manage.py", "run_jobs", "--drain")
    assert run("look.py") == "greet done 1 Hello, world"
