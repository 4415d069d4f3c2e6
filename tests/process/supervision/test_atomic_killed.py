"""``atomic=True``: wherever a run is killed, its effects are there once in the end, and so are the jobs that it enqueued."""

from __future__ import annotations

import random
from typing import Any

import pytest
from django.db import connection

from pgjobs.models import Job
from tests.testapp.jobs import scripted_atomic
from tests.testapp.models import Note
from tests.waiting import wait_until

from .conftest import Fleet, causes, nothing_is_left, stop_well

WORK: list[list[Any]] = [["note", "first"], ["enqueue", "write_note", {"text": "follow-up"}], ["note", "second"]]


def atomic(*scripts: list[Any], **options: Any) -> int:
    first, *then = scripts
    return scripted_atomic.using(**options).enqueue(steps=first, then=then).id


@pytest.mark.parametrize(
    ("how", "after"),
    [
        pytest.param(how, after, marks=() if after == len(WORK) else pytest.mark.slow)
        for how in ("kill", "terminate")
        for after in range(len(WORK) + 1)
    ],
)
def test_killed_at_any_statement(run_jobs: Fleet, how: str, after: int) -> None:
    """F151, F158: the process is killed, or its session ended: before the first statement, between any two, before the commit."""
    blow = ["kill", "SIGKILL"] if how == "kill" else ["terminate"]
    id_ = atomic([*WORK[:after], blow, *WORK[after:]], WORK)
    one = run_jobs("--threads", 1)
    wait_until(lambda: not Job.objects.exclude(status="done").exists(), "the end")
    assert [outcome for _, outcome, _ in causes(id_)] in (["crashed"], ["error"], ["interrupted"], ["lost"])
    assert sorted(Note.objects.values_list("text", flat=True)) == ["first", "follow-up", "second"]
    assert Job.objects.filter(kind="write_note").count() == 1
    stop_well(one)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_killed_at_random_moments(run_jobs: Fleet) -> None:
    """Sessions of handlers are ended all the time, in the middle of statements and of commits."""
    rng = random.Random(7)
    ids = [atomic(WORK, max_attempts=100) for _ in range(150)]
    one = run_jobs("--threads", 4)
    blows = 0

    def over() -> bool:
        nonlocal blows
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database()"
                " AND application_name = '' AND pid <> pg_backend_pid() AND xact_start IS NOT NULL AND random() < %s",
                [rng.random()],
            )
            blows += cursor.fetchone()[0]
            cursor.execute("UPDATE pgjobs_job SET run_after = now() WHERE status = 'pending' AND run_after > now()")
        return Job.objects.filter(pk__in=ids, status="done").count() == len(ids)

    wait_until(over, "the end", 200)
    wait_until(lambda: not Job.objects.exclude(status="done").exists(), "the end of the follow-ups", 60)
    failed = sum(len(causes(id_)) for id_ in ids)
    print(f"{len(ids)} jobs, {blows} sessions ended in a transaction, {failed} attempts failed by it")
    assert blows > 20
    for id_ in ids:
        texts = sorted(Note.objects.filter(job_id=id_).values_list("text", flat=True))
        assert texts == ["first", "second"]
    assert Note.objects.filter(text="follow-up").count() == len(ids)
    nothing_is_left()
    stop_well(one)
