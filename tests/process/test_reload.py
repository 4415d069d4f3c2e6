"""``--reload``: new code runs at once, and what ran is given back (F134)."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from django.db import connection

from pgjobs import enqueue
from pgjobs.models import Job
from tests.process.conftest import Start
from tests.rows import history
from tests.testapp import script
from tests.waiting import wait_until
from tests.worker_harness import BASE_DIR

OLD = """
from pgjobs import job
from tests.testapp.script import Run

@job
def reloaded(ctx):
    Run(ctx).play([["gate", 7]])
    return "old"
"""
NEW = """
from pgjobs import job

@job
def reloaded():
    return "new"
"""


def test_a_change_runs_new_code(run_jobs: Start, tmp_path: Path) -> None:
    app = tmp_path / "reloaded_app"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "jobs.py").write_text(OLD)
    (tmp_path / "reload_settings.py").write_text(
        "from tests.settings import *\nINSTALLED_APPS = [*INSTALLED_APPS, 'reloaded_app']\n"
    )
    with script.closed_gate(7) as open_gate:
        job = enqueue("reloaded", {})
        worker = run_jobs(
            "--reload", "--grace", 0.5,
            DJANGO_SETTINGS_MODULE="reload_settings", PYTHONPATH=f"{tmp_path}:{BASE_DIR}", PYTHONDONTWRITEBYTECODE="1",
        )  # fmt: skip
        wait_until(lambda: job.get().status == "reserved", "the old code to run")
        wait_until(lambda: _events(job.id), "the old code to wait")
        (app / "jobs.py").write_text(NEW)
        # Touched again and again: the reloader misses a change that comes before its first look.
        wait_until(lambda: os.utime(app / "jobs.py") or job.get().refunds == 1, "the old run to be given back")
        wait_until(lambda: job.get().status == "done", "the new code to run")
        open_gate()
    row = job.get()
    assert (row.result, row.attempts, row.refunds) == ("new", 1, 1)
    assert [h["outcome"] for h in history(job.id)] == ["interrupted"]
    worker.stop(signal.SIGINT)
    assert not Job.objects.filter(status="reserved").exists()


def _events(job_id: int) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM testapp_audit WHERE job_id = %s AND event = 'at gate'", [job_id])
        return bool(cursor.fetchone()[0])
