"""Workers under test: in this process, as real processes, against a server of the test's own, behind a cut wire."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection

from example_project import devpg
from pgjobs import job
from pgjobs.api.registry import Handler, registry
from pgjobs.conf import Settings, get_settings
from pgjobs.models import Job
from pgjobs.worker.process import Options, Worker

from .private_server import Server
from .testapp import audit
from .waiting import wait_until

BASE_DIR = Path(__file__).resolve().parent.parent

QUICK: dict[str, Any] = {
    "LEASE": 3.0,
    "HEARTBEAT": 0.2,
    "POLL_INTERVAL": 0.1,
    "LISTEN_POLL_INTERVAL": 30.0,  # what a test sees sooner came by a notification
    "GRACE": 10.0,
}
"""Settings of the workers here: all that lasts seconds is scaled down."""


# In this process -----------------------------------------------------------------------------------------------------


def settings(**changes: Any) -> Settings:
    """The effective settings, quick ones, and what the test changes."""
    return dataclasses.replace(get_settings(), **QUICK | changes)


class InThread:
    """A worker that runs in a thread of this process until it is stopped, or has drained."""

    def __init__(self, effective: Settings, options: Options) -> None:
        self.said: list[str] = []
        self.worker = Worker(effective, options, self.said.append)
        self.code: int | None = None
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="test-worker", daemon=True)

    def _run(self) -> None:
        try:
            self.code = self.worker.run()
        except BaseException as error:
            self.error = error

    def begin(self) -> InThread:
        self._thread.start()
        return self

    def wait_started(self) -> InThread:
        wait_until(lambda: self.worker.started.is_set() or not self._thread.is_alive(), "the worker to start")
        return self

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def name(self) -> str:
        return self.worker.name

    @property
    def recorded(self) -> dict[str, int]:
        """How many jobs ended with each status here."""
        return self.worker.recorded

    def wait_recorded(self, count: int, seconds: float = 20) -> None:
        """Until so many endings were recorded."""
        wait_until(lambda: sum(self.recorded.values()) >= count, f"{count} endings; {self.recorded}", seconds)

    def ended(self, seconds: float = 30) -> InThread:
        """Wait for its end. An error that it raised is raised here."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the worker still runs after {seconds} s"
        if self.error is not None:
            raise self.error
        return self

    def stop(self, seconds: float = 30) -> InThread:
        """Stop it as SIGTERM would, and wait for its end."""
        self.worker.stop()
        return self.ended(seconds)


class Workers:
    """Makes workers; at the end of the test all are stopped, and hold nothing."""

    def __init__(self) -> None:
        self.all: list[InThread] = []
        self.may_hold = False
        """Whether a worker may leave reservations behind: for tests of just that."""

    def make(self, options: Mapping[str, Any] | None = None, **changes: Any) -> InThread:
        """A worker with ``options`` of the command and ``changes`` of the settings; not begun yet. It polls."""
        one = InThread(settings(**changes), Options(**{"listen": False} | dict(options or {})))
        self.all.append(one)
        return one

    def start(self, options: Mapping[str, Any] | None = None, **changes: Any) -> InThread:
        """One that runs until it is stopped; all of its roles have started."""
        return self.make(options, **changes).begin().wait_started()

    def drain(self, options: Mapping[str, Any] | None = None, *, within: float = 30, **changes: Any) -> InThread:
        """One that runs everything due, and has ended."""
        one = self.make({"drain": True} | dict(options or {}), **changes).begin().ended(within)
        self.check(one)
        assert one.code == 0
        return one

    def check(self, one: InThread) -> None:
        assert self.may_hold or not Job.objects.filter(status="reserved", reserved_by=one.name).exists()

    def close(self) -> None:
        for one in self.all:
            if one.alive:
                one.worker.stop()
        for one in self.all:
            if one._thread.ident:
                one._thread.join(30)
                assert not one.alive, "a worker does not stop"
                self.check(one)


def worker_threads() -> list[str]:
    """Names of the threads of workers that are alive in this process."""
    return sorted(t.name for t in threading.enumerate() if t.name.startswith("pgjobs-"))


def worker_backends() -> list[str]:
    """Sessions on the test's database that are neither this thread's nor the tests' own, by name and last statement."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT concat(application_name, ': ', left(query, 60)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            " AND application_name NOT IN ('tests', %s) ORDER BY 1",
            [audit.NAME],
        )
        return [name for (name,) in cursor.fetchall()]


class Handlers:
    """``@handlers`` or ``@handlers(…)`` is ``@job(…)`` until the end of the test."""

    def __init__(self) -> None:
        self._made: list[Handler] = []

    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        def register(function: Callable[..., Any]) -> Any:
            made = job(**options)(function)
            self._made.append(made.handler)
            return made

        return register if function is None else register(function)

    def forget(self) -> None:
        for handler in self._made:
            registry.remove(handler)
        self._made.clear()


# As processes --------------------------------------------------------------------------------------------------------


def database_url(name: str | None = None) -> str:
    """The URL of the test's database, for a child process."""
    return urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name or connection.settings_dict['NAME']}").geturl()


class Process:
    """``manage.py run_jobs …``, in a process group of its own."""

    def __init__(
        self,
        *args: object,
        url: str,
        env: Mapping[str, str] | None = None,
        wrap: tuple[str, ...] = (),
        prelude: str = "",
        stdout: int = subprocess.PIPE,
    ) -> None:
        quick = {"PGJOBS_LEASE": "3", "PGJOBS_HEARTBEAT": "1", "PGJOBS_POLL_INTERVAL": "0.2", "PGJOBS_GRACE": "10"}
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTEST_"))}
        environment |= {"DATABASE_URL": url, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONUNBUFFERED": "1"}
        start = [str(BASE_DIR / "manage.py")]
        if prelude:  # Python code that runs first, in the same process
            start = ["-c", f"{prelude}\nimport runpy\nrunpy.run_path('manage.py', run_name='__main__')"]
        self._output: list[str] = []
        self.started_at = time.monotonic()
        self.popen = subprocess.Popen(
            [*wrap, sys.executable, "-W", "error", *start, "run_jobs", *map(str, args)],
            env=environment | quick | dict(env or {}),
            cwd=BASE_DIR,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="output of run_jobs", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.popen.stdout or ():
            self._output.append(line)

    @property
    def output(self) -> str:
        """All that it has written so far."""
        return "".join(self._output)

    def wait_for(self, pattern: str, seconds: float = 30) -> re.Match[str]:
        """Until a pattern stands in its output."""

        def look() -> re.Match[str] | None:
            found = re.search(pattern, self.output)
            if found is None and self.popen.poll() is not None:
                self._reader.join(5)
                found = re.search(pattern, self.output)
                assert found, f"it ended with {self.popen.returncode} and never wrote {pattern!r}:\n{self.output}"
            return found

        try:
            found = wait_until(look, f"{pattern!r} in the output", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None
        assert found
        return found

    def wait_ready(self, seconds: float = 30) -> Process:
        """Until it has said where it works: from then on it handles signals, and runs jobs."""
        self.wait_for("pgjobs worker .* pending", seconds)
        return self

    def send(self, signum: int) -> None:
        """Send a signal to it, as a process manager would."""
        self.popen.send_signal(signum)

    def kill_group(self) -> None:
        """Kill it and whatever it forked, at once: as if the machine had died."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(10)

    def wait(self, seconds: float = 30) -> int:
        """Its exit code."""
        try:
            code = self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"run_jobs has not ended within {seconds} s:\n{self.output}") from None
        self._reader.join(5)
        return code

    def stop(self, signum: int = signal.SIGTERM, seconds: float = 30) -> int:
        """Send a signal, and wait for the exit code."""
        self.send(signum)
        return self.wait(seconds)

    def end(self) -> None:
        """Leave nothing of it, whatever state it is in."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait(10)
        self._reader.join(5)
        if self.popen.stdout is not None:
            self.popen.stdout.close()


# A server of the test's own ------------------------------------------------------------------------------------------


def make_server() -> Server:
    """A fresh server with the schema in its database ``jobs``; skips the test when there are no binaries to start."""
    try:
        server = Server()
    except devpg.DevpgError as error:
        pytest.skip(f"needs a PostgreSQL that it may stop: {error}")
    server.create_database("jobs")
    subprocess.run(
        [sys.executable, str(BASE_DIR / "manage.py"), "migrate", "-v0"],
        env=os.environ | {"DATABASE_URL": server.url(), "DJANGO_SETTINGS_MODULE": "tests.settings"},
        cwd=BASE_DIR,
        check=True,
    )
    return server


# A wire that can be cut ----------------------------------------------------------------------------------------------


class Proxy:
    """A TCP port on loopback in front of a server's Unix socket. It can cut connections, refuse, or swallow what is sent."""

    def __init__(self, upstream: Path) -> None:
        self._upstream = str(upstream)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._swallowing = False
        self._refusing = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._closed = False
        self.tries = 0
        """How many connections were asked for."""
        self._threads: list[threading.Thread] = []
        self._go(self._accept)

    def _go(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, name="proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            if not select.select([self._listener], [], [], 0.05)[0]:
                continue
            client, _ = self._listener.accept()
            self.tries += 1
            if self._refusing:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self._upstream)
            except OSError:
                client.close()
                server.close()
                continue
            with self._lock:
                self._open |= {client, server}
            self._go(self._carry, client, server)

    def _carry(self, client: socket.socket, server: socket.socket) -> None:
        other = {client: server, server: client}
        try:
            while not self._closed:
                if self._swallowing:  # the bytes stay in the kernel's buffers: nobody is told of anything
                    time.sleep(0.02)
                    if client.fileno() < 0:
                        return
                    continue
                for one in select.select([client, server], [], [], 0.05)[0]:
                    data = one.recv(65536)
                    if not data:
                        return
                    other[one].sendall(data)
        except (OSError, ValueError):
            pass
        finally:
            self._close(client, server)

    def _close(self, *some: socket.socket) -> None:
        for one in some:
            with contextlib.suppress(OSError):
                one.close()
        with self._lock:
            self._open -= set(some)

    def cut(self) -> None:
        """Reset every connection."""
        with self._lock:
            some = list(self._open)
        for one in some:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._close(*some)

    def refuse(self) -> None:
        """Cut, and let nobody in."""
        self._refusing = True
        self.cut()

    def swallow(self) -> None:
        """Carry nothing any more, and say nothing: the peer looks alive, and never answers."""
        self._swallowing = True

    def heal(self) -> None:
        """Work as at first."""
        self._refusing = self._swallowing = False

    def url(self, database: str = "jobs", user: str = "postgres") -> str:
        return f"postgres://{user}@127.0.0.1:{self.port}/{database}"

    def close(self) -> None:
        self._closed = True
        self.cut()
        for thread in self._threads:
            thread.join(5)
        self._listener.close()


@contextlib.contextmanager
def proxy_to(upstream: Path) -> Iterator[Proxy]:
    """A proxy that is closed afterwards."""
    one = Proxy(upstream)
    try:
        yield one
    finally:
        one.close()
