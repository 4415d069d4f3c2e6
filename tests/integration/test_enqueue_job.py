"""manage.py enqueue_job: what a crontab or a systemd timer calls."""

from __future__ import annotations

import datetime as dt
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django.test import override_settings
from django.utils import timezone

from pgjobs.models import Job
from tests.rows import nothing_changes

pytestmark = pytest.mark.django_db


def run(*args: str) -> str:
    out = io.StringIO()
    call_command("enqueue_job", *args, stdout=out)
    return out.getvalue()


def test_a_job_with_the_handlers_options() -> None:
    said = run("add", "--payload", '{"a": 1}')
    job = Job.objects.get()
    assert said == f"{job.pk} add created\n"
    assert (job.payload, job.queue, job.priority, job.max_attempts, job.timeout) == (
        {"a": 1}, "sums", 7, 3, dt.timedelta(seconds=45),
    )  # fmt: skip


def test_every_option() -> None:
    said = run(
        "add", "--payload", '{"a": 1}', "--queue", "q", "--priority", "-5", "--run-after", "2h", "--dedupe-key", "k",
        "--max-attempts", "2", "--timeout", "1.5m", "--expires-at", "1d", "--meta", '{"m": 1}', "--json",
    )  # fmt: skip
    job = Job.objects.get()
    assert json.loads(said) == {"id": job.pk, "created": True, "action": "created", "kind": "add", "queue": "q"}
    assert (job.queue, job.priority, job.dedupe_key, job.max_attempts, job.meta) == ("q", -5, "k", 2, {"m": 1})
    assert job.timeout == dt.timedelta(seconds=90)
    hour = dt.timedelta(hours=1)
    assert hour < job.run_after - timezone.now() < 2 * hour
    assert job.expires_at is not None
    assert 23 * hour < job.expires_at - timezone.now() < 24 * hour


def test_a_held_key_is_a_success() -> None:
    """A crontab that comes too early is no error."""
    run("add", "--payload", '{"a": 1}', "--dedupe-key", "k")
    job = Job.objects.get()
    assert run("add", "--payload", '{"a": 2}', "--dedupe-key", "k") == f"{job.pk} add kept\n"
    assert (
        run("add", "--payload", '{"a": 3}', "--dedupe-key", "k", "--on-conflict", "replace")
        == f"{job.pk} add replaced\n"
    )
    assert Job.objects.get().payload == {"a": 3}


def test_quiet() -> None:
    assert run("add", "--payload", '{"a": 1}', "-v", "0") == ""


def test_the_payload_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"a": "ünï"}\n'))
    run("add", "--payload", "-")
    assert Job.objects.get().payload == {"a": "ünï"}


@pytest.mark.parametrize("use_tz", [True, False])
@pytest.mark.parametrize("text", ["2026-12-24T18:00+01:00", "2026-12-24 22:45+05:45", "2026-12-24 22:45"])
def test_times(text: str, use_tz: bool) -> None:
    """F91: a time without an offset is read in TIME_ZONE, in both modes."""
    with override_settings(USE_TZ=use_tz, TIME_ZONE="Asia/Kathmandu"):
        run("add", "--payload", '{"a": 1}', "--run-after", text)
    assert Job.objects.get().run_after == dt.datetime(2026, 12, 24, 17, tzinfo=dt.UTC)


def test_no_limit() -> None:
    run("add", "--payload", '{"a": 1}', "--timeout", "none")
    assert Job.objects.get().timeout is None


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["ad"], "no handler is called 'ad'. Did you mean 'add'\\?.*--unknown-kind"),
        (["add", "--payload", "{a: 1}"], "--payload: not JSON: .*single quotes"),
        (["add", "--payload", "[" * 500_000], "--payload: is nested too deeply"),
        (["add", "--payload", "[1]"], "--payload: has to be a JSON object"),
        (["add", "--payload", '{"a": NaN}'], "payload.a is nan"),
        (["add", "--payload", "{}"], "needs the argument 'a'"),
        (["add", "--payload", '{"a": 1, "c": 2}'], "has no argument 'c'"),
        (["add", "--payload", '{"a": 1}', "--meta", "1"], "--meta: has to be a JSON object"),
        (["add", "--payload", '{"a": 1}', "--priority", "101"], "priority has to be a whole number from -100 to 100"),
        (["add", "--payload", '{"a": 1}', "--run-after", "tomorrow"], "--run-after: 'tomorrow' is neither a delay"),
        (["add", "--payload", '{"a": 1}', "--run-after", "2026-13-01 00:00"], "--run-after"),
        (["add", "--payload", '{"a": 1}', "--run-after", "999999999999d"], "century"),
        (["add", "--payload", '{"a": 1}', "--expires-at", "999999999999d"], "--expires-at"),
        (["add", "--payload", '{"a": 1}', "--timeout", "0"], "timeout has to be above zero"),
        (["add", "--payload", '{"a": 1}', "--timeout", "x"], "--timeout: 'x' is no duration"),
        (["add", "--payload", '{"a": 1}', "--max-attempts", "0"], "max_attempts"),
        (["add", "--payload", '{"a": 1}', "--queue", ""], "queue"),
        (["add", "--payload", '{"a": 1}', "--dedupe-key", ""], "dedupe_key"),
        (["add", "--payload", '{"a": 1}', "--database", "nowhere"], "'nowhere' is no alias"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(args: list[str], says: str) -> None:
    with nothing_changes(), pytest.raises(CommandError, match=says) as error:
        run(*args)
    assert error.value.returncode == 1


@override_settings(USE_TZ=False, TIME_ZONE="Pacific/Kiritimati")
def test_a_time_beyond_the_calendar_of_the_projects_zone() -> None:
    with pytest.raises(CommandError, match="beyond the calendar"):
        run("add", "--payload", '{"a": 1}', "--run-after", "9999-12-31T23:59+00:00")


def test_standard_input_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"a": "\xff"}'), "utf-8"))
    with pytest.raises(CommandError, match=r"no text in utf-8: .* at byte 7"):
        run("add", "--payload", "-")


def test_a_kind_that_other_code_runs() -> None:
    run("elsewhere.report", "--payload", '{"x": 1}', "--unknown-kind")
    assert Job.objects.get().kind == "elsewhere.report"


def test_without_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: Any, **__: Any) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr("pgjobs.management.commands.enqueue_job.enqueue", gone)
    with pytest.raises(CommandError, match="cannot be reached, so nothing was enqueued: connection refused"):
        run("add", "--payload", '{"a": 1}')


PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/external-schedulers.md"


def test_the_commands_of_the_how_to_work_as_they_stand_there() -> None:
    commands = re.findall(r"manage\.py enqueue_job (send_report .*)", PAGE.read_text())
    assert len(commands) == 2
    for command in commands:
        run(*shlex.split(command), "--unknown-kind")
    [job] = Job.objects.all()  # the key is held
    assert (job.kind, job.payload, job.dedupe_key) == ("send_report", {"days": 1}, "nightly-report")


def test_exit_codes_of_the_real_command() -> None:
    """1 when nothing was stored, 2 for what argparse does not know: systemd and cron look at nothing else."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "manage.py", "enqueue_job"]
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "tests.settings"}
    for args, code, says in (
        (["nobody"], 1, "CommandError: no handler is called 'nobody'"),
        (["add", "--prio", "high"], 2, "invalid int value"),
    ):
        done = subprocess.run([*command, *args], cwd=root, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (code, "")
        assert says in done.stderr
        assert "Traceback" not in done.stderr
