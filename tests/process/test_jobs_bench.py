"""``manage.py jobs_bench``: it measures, and leaves everything as it was."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs.api.registry import registry
from pgjobs.models import Job
from tests.waiting import wait_until
from tests.worker_harness import BASE_DIR, database_url

pytestmark = pytest.mark.usefixtures("transactional_db")


def start(*args: object, **env: str) -> subprocess.Popen[str]:
    """The command on the test's database, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "manage.py", "jobs_bench", *map(str, args)],
        cwd=BASE_DIR,
        env=os.environ | {"DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.settings"} | env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def others() -> list[dict[str, Any]]:
    """Every row that is not the bench's."""
    return list(Job.objects.exclude(queue__startswith="pgjobs-bench").order_by("id").values())


def leftovers() -> list[str]:
    """What a run must not leave behind: jobs, tables, rows of workers, sessions."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 'job ' || id FROM pgjobs_job WHERE queue LIKE 'pgjobs-bench%%'"
            " UNION ALL SELECT 'table ' || relname FROM pg_class WHERE relname LIKE 'pgjobs\\_bench%%' AND relkind = 'r'"
            " UNION ALL SELECT 'worker ' || name FROM pgjobs_worker"
            " UNION ALL SELECT 'session ' || application_name FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'pgjobs%%'",
            [],
        )
        return [name for (name,) in cursor.fetchall()]


@pytest.fixture
def bystanders() -> list[dict[str, Any]]:
    """Jobs that any ordinary worker would do something about: due, lapsed, expired, long done."""
    now, ago = timezone.now(), timezone.now() - dt.timedelta(days=400)
    Job.objects.create(kind="echo", payload={"a": 1})
    Job.objects.create(
        kind="echo", status="reserved", lease=1, reserved_by="gone", reserved_at=ago, reserved_until=ago, attempts=1
    )
    Job.objects.create(kind="echo", run_after=now + dt.timedelta(days=1), expires_at=ago)
    Job.objects.create(kind="echo", status="done", finished_at=ago)
    return others()


def test_it_measures_and_touches_no_other_job(bystanders: list[dict[str, Any]]) -> None:
    process = start("--json", "--jobs", 300, "--samples", 5)
    out, err = process.communicate(timeout=90)
    assert process.returncode == 0, err
    figures = {figure["name"]: figure for figure in json.loads(out)["figures"]}
    assert [name.split("(")[0].split(",")[0] for name in figures] == [
        "enqueue",
        "enqueue_many",
        "drain",
        "pick-up p50",
        "pick-up p95",
    ]
    assert all(figure["pgjobs"] > 0 and figure["bare"] > 0 for figure in figures.values())
    assert figures["pick-up p50"]["pgjobs"] <= figures["pick-up p95"]["pgjobs"]
    assert others() == bystanders
    assert leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGTERM, signal.SIGINT]])
def test_signals_in_the_middle_leave_nothing_behind(bystanders: list[dict[str, Any]], numbers: list[int]) -> None:
    process = start("--jobs", 100, "--samples", 100_000)
    wait_until(
        lambda: Job.objects.filter(queue__startswith="pgjobs-bench", status="done", payload__has_key="sent").exists(),
        "a picked-up job",
        60,
    )
    for number in numbers:
        os.killpg(process.pid, number)  # as a terminal sends it: to the workers too
    _, err = process.communicate(timeout=30)
    assert process.returncode not in (0, None), err
    assert others() == bystanders
    assert leftovers() == []


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error_and_leaves_nothing_behind() -> None:
    process = start("--jobs", 100, "--samples", 100_000, "--no-floor")
    wait_until(lambda: Job.objects.filter(queue__startswith="pgjobs-bench", status="done").exists(), "a job", 60)
    [worker] = Job.objects.filter(queue__startswith="pgjobs-bench", status="done").values_list("worker", flat=True)[:1]
    os.kill(int(worker.split(":")[1]), signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "has died" in err
    wait_until(lambda: not leftovers(), "its sessions to end")


def test_fixed_queues_are_refused_with_the_way_out() -> None:
    process = start(PGJOBS_QUEUES=json.dumps(sorted({handler.queue for handler in registry.handlers()})))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "PGJOBS_QUEUES=null" in err
