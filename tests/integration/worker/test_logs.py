"""What a worker logs: levels, fields, and one line for each change of state (F140)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.db import OperationalError

from pgjobs import store
from tests.factories import JobFactory
from tests.integration.worker.conftest import steal
from tests.testapp import audit, script
from tests.testapp.jobs import scripted, scripted_now
from tests.waiting import wait_until
from tests.worker_harness import Workers

LEVELS = [
    ([["return", 1]], {}, [("DEBUG", "started, attempt 1"), ("DEBUG", "done, attempt 1")]),
    (
        [["raise", "ValueError", "line one\nline two"]],
        {"max_attempts": 2},
        [("DEBUG", "started, attempt 1"), ("WARNING", "attempt 1 of 2 failed, again in 0.0 s (ValueError: line one line two)"),
         ("DEBUG", "started, attempt 2"), ("ERROR", "dead after attempt 2 of 2 (ValueError: line one line two)")],
    ),
    ([["fail", "never"]], {}, [("DEBUG", "started, attempt 1"), ("ERROR", "failed after attempt 1 of 10 (Fail: never)")]),
    ([["snooze", 60]], {}, [("DEBUG", "started, attempt 1"), ("INFO", "snoozed")]),
    ([["cancel"]], {}, [("DEBUG", "started, attempt 1"), ("INFO", "cancelled")]),
    (
        [["return_odd", "set"]],
        {},
        [("DEBUG", "started, attempt 1"), ("DEBUG", "done, attempt 1"),
         ("WARNING", "done, but result not stored: set cannot be written as JSON (TypeError)")],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "options", "expected"), LEVELS, ids=lambda value: str(value)[:20])
def test_levels_and_fields(
    workers: Workers, caplog: pytest.LogCaptureFixture, steps: Any, options: Any, expected: list[tuple[str, str]]
) -> None:
    caplog.set_level(logging.DEBUG, "pgjobs")
    job = scripted_now.using(queue="mail", **options).enqueue(steps=steps)
    workers.drain()
    lines = [record for record in caplog.records if getattr(record, "job_id", None) == job.id]
    assert [
        (line.levelname, line.getMessage().removeprefix(f"job {job.id} scripted_now: ")) for line in lines
    ] == expected
    for line in lines:
        assert (line.kind, line.queue) == ("scripted_now", "mail")  # type: ignore[attr-defined]
        assert line.exc_info is None, "tracebacks stand in the history"
        assert "\n" not in line.getMessage()


def test_payloads_are_not_logged(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    """F128."""
    caplog.set_level(logging.DEBUG)
    scripted.enqueue(steps=[["audit", "s3cr3t"]])
    workers.drain()
    assert "s3cr3t" not in "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("pgjobs"))


def test_lost_and_reaped(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    orphan = JobFactory(lapsed=True, kind="unknown", worker="w-dead")
    last = JobFactory(lapsed=True, kind="unknown", worker="w-dead", max_attempts=1)
    with script.closed_gate() as open_gate:
        job = scripted.enqueue(steps=[["gate", 1]])
        worker = workers.start()
        wait_until(lambda: "at gate" in audit.events(job.id))
        steal(job.id)
        wait_until(lambda: f"job {job.id} scripted: its lease was lost" in caplog.text)
        open_gate()
        worker.wait_recorded(1)
    levels = {record.getMessage(): record.levelname for record in caplog.records}
    assert levels[f"job {job.id} scripted: the lease was lost, so its outcome was not recorded"] == "WARNING"
    assert levels[f"job {orphan.pk} unknown: pending again, its worker w-dead was lost in attempt 1"] == "WARNING"
    assert levels[f"job {last.pk} unknown: dead, its worker w-dead was lost in attempt 1"] == "ERROR"


def test_trouble_with_the_database_is_two_lines_for_a_role(
    workers: Workers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, calls = store.claim, []

    def away(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if 3 < len(calls) < 9:
            raise OperationalError("server closed the connection\nunexpectedly")
        return claim(*args, **options)

    monkeypatch.setattr(store, "claim", away)
    workers.start(POLL_INTERVAL=0.02)
    wait_until(lambda: len(calls) > 12)
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("claimer")]
    assert len(lines) == 2
    assert lines[0] == (
        "claimer: the database does not answer as it should (OperationalError: server closed the connection); trying again"
    )
    assert lines[1].startswith("claimer: works again after ")


def test_an_idle_worker_says_nothing(workers: Workers, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pgjobs")
    workers.drain()
    assert [r for r in caplog.records if r.name.startswith("pgjobs")] == []
