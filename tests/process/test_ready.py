"""Importing the project starts nothing: schedules are fired by ``run_jobs`` alone."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.worker_harness import BASE_DIR

NOBODY = "postgres://nobody@127.0.0.1:1/nothing"  # whoever asks it for anything fails
LOOK = "import threading; print([thread.name for thread in threading.enumerate()])"


@pytest.mark.parametrize("args", [["check"], ["shell", "-v", "0", "-c", LOOK], ["enqueue_job", "--help"]])
def test_commands_that_are_not_run_jobs_ask_no_database_and_start_no_thread(args: list[str]) -> None:
    """F104: else each web process, migrate and shell would be a scheduler."""
    environment = os.environ | {"DATABASE_URL": NOBODY, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    command = [sys.executable, "-W", "error", "manage.py", *args]
    done = subprocess.run(command, cwd=BASE_DIR, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    if LOOK in args:
        assert done.stdout.strip().splitlines()[-1] == "['MainThread']"
