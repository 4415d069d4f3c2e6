"""What run_jobs says when it starts, and what it refuses (F61, F136, F137)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pgjobs.models import Job
from tests.factories import JobFactory
from tests.process.conftest import Start
from tests.testapp.jobs import scripted
from tests.worker_harness import BASE_DIR, Process, Server

Configure = Callable[..., dict[str, str]]


@pytest.fixture
def configured(tmp_path: Path) -> Configure:
    """Environment of a process whose settings are those of the tests and some lines more."""

    def configure(lines: str = "", **env: str) -> dict[str, str]:
        (tmp_path / "changed_settings.py").write_text(f"from tests.settings import *\n{lines}\n")
        return {"DJANGO_SETTINGS_MODULE": "changed_settings", "PYTHONPATH": f"{tmp_path}:{BASE_DIR}"} | env

    return configure


def refused(worker: Process, *texts: str) -> None:
    """It ended by itself with an error of one line that says all of it, and no traceback."""
    assert worker.wait() not in (0, None)
    for text in texts:
        assert text in worker.output
    assert "Traceback" not in worker.output
    assert "pgjobs worker" not in worker.output


def test_the_first_line(run_jobs: Start) -> None:
    JobFactory.create_batch(2, queue="later")
    worker = run_jobs("--queue", "a", "--queue", "b", "--exclude-queue", "b", "--threads", 3, "--drain")
    assert worker.wait() == 0
    first = worker.output.splitlines()[0]
    for text in ("alias 'default'", "schema 'public'", "queues: a, b but b", "scripted_now", "3 threads", "2 pending"):
        assert text in first


def test_missing_migrations(server: Server, run_jobs: Start) -> None:
    server.create_database("empty")
    refused(run_jobs(url=server.url("empty")), "migrations are missing: pgjobs.0001_initial", "manage.py migrate")


def test_a_database_that_does_not_exist_is_waited_for(server: Server, run_jobs: Start) -> None:
    worker = run_jobs(url=server.url("not_made_yet"))
    worker.wait_for("trying again")
    subprocess.run([sys.executable, "-c", ""], check=True)
    server.create_database("not_made_yet")
    refused(worker, "migrations are missing")


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (["--queue", ""], "a queue's name has 1 to 255 bytes"),
        (["--queue", "a", "--exclude-queue", "a"], "every --queue is excluded"),
        (["--threads", "0"], "whole number above zero"),
        (["--threads", "-1"], "whole number above zero"),
        (["--max-jobs", "x"], "whole number above zero"),
        (["--grace", "-1"], "no number of seconds"),
        (["--poll-interval", "0"], "above zero"),
        (["--poll-interval", "nan"], "no number of seconds"),
        (["--database", "elsewhere"], "'elsewhere' is no alias of DATABASES; there are default"),
        (["--no-such-option"], "unrecognized arguments"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_options_that_cannot_work(run_jobs: Start, args: list[str], text: str) -> None:
    refused(run_jobs(*args), text)


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"PGJOBS_LEASE": "3", "PGJOBS_HEARTBEAT": "2"}, "HEARTBEAT (2 s) has to be at most a third of LEASE (3 s)"),
        ({"PGJOBS_WATCHDOG": "20"}, "WATCHDOG (20 s) has to be shorter than LEASE"),
        ({"PGJOBS_THREADS": "many"}, "THREADS"),
        ({"PGJOBS_GRACE": "soon"}, "GRACE"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_environment_that_cannot_work(run_jobs: Start, env: dict[str, str], text: str) -> None:
    refused(run_jobs(**env), text)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("PGJOBS = {'LEESE': 5}", "did you mean 'LEASE'?"),
        ("PGJOBS = {'THREADS': '4'}", "THREADS: has to be a whole number"),
        ("PGJOBS = ['THREADS']", "PGJOBS has to be a dict"),
        ("DATABASES = {'default': {'ENGINE': 'django.db.backends.sqlite3', 'NAME': ':memory:'}}", "is sqlite"),
        ("INSTALLED_APPS = ['django.contrib.contenttypes', 'django.contrib.auth', 'pgjobs']", "no handlers found"),
    ],
)
def test_settings_that_cannot_work(run_jobs: Start, configured: Configure, line: str, text: str) -> None:
    refused(run_jobs(**configured(line)), text)


def test_precedence(run_jobs: Start, configured: Configure) -> None:
    """F136: the command line, then the environment, then the settings, then the defaults; printed with -v 2."""
    env = configured("PGJOBS = {'THREADS': 7, 'GRACE': 8, 'PREFETCH_MS': 9}", PGJOBS_GRACE="18", PGJOBS_THREADS="17")
    worker = run_jobs("--drain", "--threads", 27, "-v", 2, **env)
    assert worker.wait() == 0
    for line in ("THREADS = 27", "GRACE = 18.0", "PREFETCH_MS = 9", "MAX_ATTEMPTS = 10"):
        assert f"  {line}\n" in worker.output


def test_debug_is_pointed_out(run_jobs: Start, configured: Configure) -> None:
    worker = run_jobs("--drain", **configured("DEBUG = True"))
    assert worker.wait() == 0
    assert "DEBUG is on" in worker.output


def test_max_jobs(run_jobs: Start) -> None:
    """F53."""
    for _ in range(30):
        scripted.enqueue(steps=[])
    assert run_jobs("--max-jobs", 10).wait() == 0
    assert Job.objects.filter(status="done").count() == 10
    assert Job.objects.filter(status="pending", attempts=0).count() == 20
