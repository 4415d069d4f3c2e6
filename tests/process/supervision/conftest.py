"""Real supervisors with real processes, on the test's database or on a server of their own."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from pgjobs.models import Attempt, Job
from tests.testapp.jobs import scripted, scripted_now
from tests.testapp.models import Audit
from tests.waiting import wait_until
from tests.worker_harness import Process, Server, database_url, make_server

Steps = list[list[Any]]


class Fleet:
    """Starts ``run_jobs``; at the end of the test nothing of it is left."""

    def __init__(self) -> None:
        self.all: list[Process] = []

    def __call__(self, *args: object, env: dict[str, str] | None = None, ready: bool = True, **more: Any) -> Process:
        one = Process(*args, **{"url": more.pop("url", None) or database_url(), "env": env} | more)
        self.all.append(one)
        return one.wait_ready() if ready else one

    def close(self) -> None:
        for one in self.all:
            one.end()
            print(f"--- what {one.popen.pid} wrote:\n{one.output}")  # pytest shows it when the test failed


@pytest.fixture
def run_jobs(transactional_db: None) -> Iterator[Fleet]:
    """``run_jobs("--threads", 4)``: started, and ready; LEASE 3, HEARTBEAT 1, GRACE 10 unless ``env`` says otherwise."""
    fleet = Fleet()
    yield fleet
    fleet.close()
    with connection.cursor() as cursor:  # sessions of killed processes: the database is cleaned next
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    server = make_server()
    yield server
    server.remove()


@pytest.fixture
def server(_server: Server) -> Iterator[Server]:
    """A PostgreSQL that the test may stop; its database ``jobs`` is empty, and it runs."""
    _server.start()
    yield _server
    _server.start()
    with _server.connect() as direct:
        direct.execute("ALTER SYSTEM RESET ALL")
        direct.execute("SELECT pg_reload_conf()")
        direct.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'jobs' AND pid <> pg_backend_pid()"
        )
        direct.execute("SET default_transaction_read_only = off")
        for table in ("pgjobs_rerun", "pgjobs_job", "pgjobs_attempt", "pgjobs_worker", "testapp_audit", "testapp_note"):
            direct.execute(f"DELETE FROM {table}")  # type: ignore[arg-type]  # noqa: S608


def children(pid: int) -> list[int]:
    """The processes that a process forked, and that still run."""
    with contextlib.suppress(OSError):
        found = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        return [child for child in found if not gone(child)]
    return []


def gone(pid: int) -> bool:
    """Whether a process runs no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_gone(pids: list[int], seconds: float = 30) -> None:
    wait_until(lambda: all(gone(pid) for pid in pids), f"the end of {pids}", seconds)


def script(*steps: list[Any], then: list[Steps] | None = None, now: bool = True, **options: Any) -> int:
    """Enqueue a job that does steps; ``then`` are those of its later attempts. Its id."""
    handler = scripted_now if now else scripted
    return handler.using(**options).enqueue(steps=list(steps), **({} if then is None else {"then": then})).id


def status(id: int) -> str:  # noqa: A002
    return Job.objects.values_list("status", flat=True).get(pk=id)


def wait_status(id: int, wanted: str, seconds: float = 30) -> Job:  # noqa: A002
    """Until the job has a status."""
    with _told(id):
        wait_until(lambda: status(id) == wanted, f"job {id} to be {wanted}", seconds)
    return Job.objects.get(pk=id)


@contextlib.contextmanager
def _told(id: int) -> Iterator[None]:  # noqa: A002
    """A failure of the block says what the job went through."""
    try:
        yield
    except AssertionError as error:
        row = Job.objects.filter(pk=id).values(
            "status", "attempts", "run_after", "reserved_by", "suspect", "last_error"
        )
        raise AssertionError(f"{error}; {list(row)}; {story(id)}; {causes(id)}") from None


def story(id: int | None = None) -> str:  # noqa: A002
    """What happened, for a message."""
    rows = Audit.objects.order_by("id") if id is None else Audit.objects.filter(job_id=id).order_by("id")
    return str([(a.job_id, a.attempt, a.event, a.data, a.pid) for a in rows])


def events(id: int, event: str) -> list[Audit]:  # noqa: A002
    return list(Audit.objects.filter(job_id=id, event=event).order_by("id"))


def wait_event(id: int, event: str, count: int = 1, seconds: float = 30) -> Audit:  # noqa: A002
    """Until a run has recorded an event so many times; the last one."""
    with _told(id):
        wait_until(lambda: len(events(id, event)) >= count, f"{count} × {event} of job {id}", seconds)
    return events(id, event)[count - 1]


def causes(id: int) -> list[tuple[int, str, str]]:  # noqa: A002
    """The history: (attempt, outcome, error)."""
    return list(Attempt.objects.filter(job_id=id).order_by("id").values_list("attempt", "outcome", "error"))


def nothing_is_left() -> None:
    assert not Job.objects.exclude(status__in=("done", "dead", "failed", "cancelled")).exists(), list(
        Job.objects.exclude(status__in=("done", "dead", "failed", "cancelled")).values()
    )


@contextlib.contextmanager
def measured(what: str, within: float) -> Iterator[Callable[[], float]]:
    """Print how long the block took, and fail when it was longer than ``within`` seconds. Yields the time so far."""
    began = time.monotonic()
    yield lambda: time.monotonic() - began
    took = time.monotonic() - began
    print(f"{what}: {took:.2f} s (at most {within:g} s)")
    assert took <= within, f"{what} took {took:.2f} s, more than {within:g} s"


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)


def stop_well(one: Process, number: int = signal.SIGTERM) -> None:
    """SIGTERM, and exit code 0."""
    code = one.stop(number)
    assert code == 0, f"exit code {code}:\n{one.output}"
