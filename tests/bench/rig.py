"""The bench: a private server, a database with the schema on it, workers, and the turns in which things are measured."""

from __future__ import annotations

import contextlib
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg

from tests.private_server import Server
from tests.waiting import wait_until

from . import journal
from .results import Series

BASE_DIR = Path(__file__).resolve().parent.parent.parent

SERVER = {"shared_buffers": "256MB", "fsync": "on", "synchronous_commit": "on"}
"""What every figure is measured with; all else is PostgreSQL's default."""

PREFIX = "%a|"
"""Of the server's log: who sent it."""

REPORTED = ("server_version", *SERVER, "max_connections", "max_wal_size", "autovacuum")


class Rig:
    """One run's server and Django; ``close()`` leaves nothing behind."""

    def __init__(self) -> None:
        self.runs = 5
        self.skipped: list[str] = []
        """A line for each thing that could not be measured here, and why."""
        self.beside: dict[str, str] = {}
        """Versions of what else was measured."""
        self._workers: list[Worker] = []
        self._temporary = tempfile.TemporaryDirectory(prefix="pgjobs-bench-", ignore_cleanup_errors=True)
        self.place = Path(self._temporary.name)
        self.server = Server()
        try:
            with self.server.connect("postgres") as connection:
                for name, value in {**SERVER, "log_line_prefix": PREFIX}.items():
                    connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")  # type: ignore[arg-type]
            self.server.restart()
            self.server.create_database("jobs")
            os.environ |= {"DATABASE_URL": self.server.url(), "DJANGO_SETTINGS_MODULE": "tests.bench.settings"}
            os.environ[journal.VARIABLE] = str(self.place / "journal")
            self._set_up()
            self._own = self.connect()
        except BaseException:
            self.server.remove()
            raise

    def _set_up(self) -> None:
        import django
        from django.core.management import call_command

        django.setup()
        call_command("migrate", verbosity=0)

    def close(self) -> None:
        """Stop what runs, and remove the server."""
        from django.db import connections

        for worker in self._workers:
            worker.kill()
        connections.close_all()
        self._own.close()
        self.server.remove()
        self._temporary.cleanup()

    # --- the database ---

    @property
    def dsn(self) -> str:
        """For processes that know nothing of Django."""
        return self.server.url()

    def connect(self, **more: Any) -> psycopg.Connection[Any]:
        """A session of its own; autocommit, and never in the server's log of statements."""
        options = "-c log_min_duration_statement=-1 -c log_statement=none"
        return psycopg.connect(self.dsn, **{"autocommit": True, "application_name": "bench", "options": options} | more)

    def query(self, sql: str, *parameters: Any) -> Any:
        """The first column of the first row; None without rows."""
        cursor = self._own.execute(sql, parameters or None)  # type: ignore[arg-type]
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def empty(self) -> None:
        """No jobs, no dead rows, and no notes of handlers."""
        for table in ("pgjobs_job", "pgjobs_attempt", "pgjobs_worker", "pgjobs_rerun", "pgjobs_pause"):
            self.query(f"TRUNCATE {table} CASCADE")
        (self.place / "journal").write_bytes(b"")  # whoever has it open appends to it

    def settle(self, table: str = "pgjobs_job") -> None:
        """What would disturb later is done now."""
        self.query(f"VACUUM ANALYZE {table}")
        self.query("CHECKPOINT")

    def fill(
        self, count: int, kind: str = "noop", *, ahead: str = "0", queue: str = "'default'", priority: int = 0
    ) -> None:
        """Pending jobs by one plain INSERT, announced to nobody; ``queue`` is an expression over ``n``."""
        with self.connect() as connection, connection.transaction():
            connection.execute("SET LOCAL pgjobs.notify = 'off'")
            connection.execute(
                "INSERT INTO pgjobs_job (kind, payload, queue, priority, run_after) SELECT %s, jsonb_build_object('n', n),"
                f" {queue}, %s, now() + interval '{ahead}' FROM generate_series(1, %s) n",  # type: ignore[arg-type]
                (kind, priority, count),
            )

    def nth_due(self, n: int) -> int:
        """The id of the job that is the n-th to be claimed among those of priority 0."""
        found: int = self.query(
            "SELECT id FROM pgjobs_job WHERE status = 'pending' AND priority = 0 ORDER BY run_after, id OFFSET %s LIMIT 1",
            n - 1,
        )
        return found

    def wait_done(self, id_: int, seconds: float = 900) -> None:
        """Until a job is done. Looking at one row by its primary key disturbs nobody."""
        status = "SELECT status = 'done' FROM pgjobs_job WHERE id = %s"
        wait_until(lambda: self.query(status, id_), f"job {id_} to be done", seconds)

    def work_off(self, jobs: int) -> int:
        """Enqueue a backlog of no-op jobs by one statement, and wait until all are done; the id before the first of them."""
        before: int = self.query("SELECT coalesce(max(id), 0) FROM pgjobs_job")
        with self.connect() as connection:  # one commit, one announcement
            connection.execute("INSERT INTO pgjobs_job (kind) SELECT 'noop' FROM generate_series(1, %s)", (jobs,))
        self.wait_done(self.query("SELECT max(id) FROM pgjobs_job"))  # the last to be claimed
        count = "SELECT count(*) FROM pgjobs_job WHERE id > %s AND status = 'done'"
        wait_until(lambda: self.query(count, before) >= jobs, f"{jobs} jobs to be done", 60)
        return before

    @contextlib.contextmanager
    def logging(self, **settings: object) -> Iterator[None]:
        """The server logs what sessions of these settings would, of those that begin now and are not our own."""
        for name, value in settings.items():
            self.query(f"ALTER DATABASE jobs SET {name} = '{value}'")
        yield
        for name in settings:
            self.query(f"ALTER DATABASE jobs RESET {name}")

    def log_from(self, offset: int = 0) -> tuple[str, int]:
        """What the server logged from a place on, each message on one line; and where it ends."""
        with open(self.server._cluster.log, errors="replace") as log:
            log.seek(offset)
            return re.sub(r"\n\t", " ", log.read()), log.tell()

    # --- workers ---

    @property
    def notes(self) -> list[tuple[float, float]]:
        """(sent, started) of each ``stamp`` since the last ``empty()``."""
        return journal.read(self.place / "journal")

    @contextlib.contextmanager
    def worker(self, *args: object, **env: str) -> Iterator[Worker]:
        """``run_jobs`` with these arguments, ready; stopped gracefully at the end."""
        worker = Worker(self.place / f"worker-{len(self._workers)}.log", *args, **env)
        self._workers.append(worker)
        worker.wait_ready()
        yield worker
        worker.stop()

    def wait_asleep(self, listeners: int = 1) -> None:
        """Until so many processes listen and have nothing to do."""
        wait_until(
            lambda: (
                self.query(
                    "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgjobs listener' AND state = 'idle'"
                )
                >= listeners
            ),
            "the worker to listen",
        )
        time.sleep(0.3)  # nothing tells from outside that it has gone to sleep

    def say(self, line: str) -> None:
        """Progress, apart from the results."""
        print(line, file=sys.stderr, flush=True)

    def in_turns(self, unit: str, **measures: Callable[[], float]) -> dict[str, Series]:
        """A, B, A, B, …: what changes with time on this machine changes for both. Underscores in names become spaces."""
        samples: dict[str, list[float]] = {name: [] for name in measures}
        for run in range(1, self.runs + 1):
            for name, measure in measures.items():
                samples[name].append(measure())
            self.say(
                f"run {run} of {self.runs}: " + ", ".join(f"{name} {some[-1]:,.2f}" for name, some in samples.items())
            )
        return {name: Series(name.replace("_", " "), unit, some) for name, some in samples.items()}


class Worker:
    """``run_jobs`` as a process of its own."""

    def __init__(self, log: Path, *args: object, **env: str) -> None:
        self.log = log
        with open(log, "w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "django", "run_jobs", *map(str, args)],
                cwd=BASE_DIR,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | env,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _look(self, pattern: str) -> bool:
        ended = self.process.poll() is not None
        if re.search(pattern, self.log.read_text()):
            return True
        if ended:
            raise RuntimeError(f"the worker ended with {self.process.returncode}:\n{self.log.read_text()}")
        return False

    def wait_ready(self) -> None:
        """Until it has said where it works."""
        wait_until(lambda: self._look("pgjobs worker .* pending"), "the worker to start", 60)

    def wait(self, seconds: float = 600) -> None:
        """Until it ends by itself; RuntimeError when it does not end well."""
        if self.process.wait(seconds):
            raise RuntimeError(f"the worker ended with {self.process.returncode}:\n{self.log.read_text()}")

    def stop(self) -> None:
        """As a process manager would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.wait(60)

    def kill(self) -> None:
        """It, and whatever it forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(10)

    @property
    def children(self) -> list[int]:
        """Its worker processes."""
        pid = self.process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def machine() -> dict[str, Any]:
    """What a reader has to know of the machine."""
    found: dict[str, Any] = {"cores": os.cpu_count(), "system": f"{platform.system()} {platform.release()}"}
    with contextlib.suppress(OSError):
        found["memory_gib"] = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30)
        model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        found["processor"] = model[1] if model else platform.machine()
        found["load"] = round(os.getloadavg()[0], 2)
    return found


def versions() -> dict[str, str]:
    """Of Python, and of what is measured."""
    some = {name: version(name) for name in ("Django", "psycopg")}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=BASE_DIR, capture_output=True, text=True)
    return {"Python": platform.python_version(), **some, "pgjobs": commit.stdout.strip() or version("django-pgjobs")}
