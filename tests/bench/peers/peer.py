"""Another queue: how it is installed, and how its worker is measured from outside."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.waiting import wait_until

from ..results import Bar
from ..rig import Rig

PROGRAMS = Path(__file__).parent / "programs"

PYTHON = os.environ.get("BENCH_PYTHON", sys.executable)
"""The interpreter of the peers' environments; some of them want a newer one than pgjobs."""


class Unavailable(Exception):
    """It cannot be measured here; the message says why, in one line."""


@dataclass(frozen=True)
class Setting:
    """One way to run it. ``bar`` is what pgjobs' drain is asked for as a multiple of this one's."""

    name: str
    key: str
    """What its program calls it: default or tuned."""
    processes: int = 1
    share: float = 1.0
    """Of the jobs of a drain: slow ones get fewer."""
    against: int = 1
    """How many processes of pgjobs it is compared with."""
    bar: Bar | None = None
    note: str = ""
    pickup: bool = True
    """Whether its pick-up is measured too."""


@dataclass
class Peer:
    """A queue and its settings."""

    name: str
    packages: tuple[str, ...]
    program: str
    settings: tuple[Setting, ...]
    env: dict[str, str] = field(default_factory=dict)
    redis: bool = False

    @property
    def pinned(self) -> str:
        """Its name with its version."""
        return f"{self.name} {re.split('==|@', self.packages[0])[1]}"

    def install(self, place: Path) -> None:
        """Into a directory of its own; raises Unavailable."""
        self.place = place / self.name
        self.place.mkdir()
        if self.program.endswith(".mjs"):
            self._run("npm", "install", "--silent", "--no-audit", "--no-fund", *self.packages, why="npm")
            self.command = ["node", str(PROGRAMS / self.program)]
        else:
            self._run(PYTHON, "-m", "venv", ".", why="venv")
            self._run("bin/python", "-m", "pip", "install", "-q", *self.packages, why="pip")
            self.command = [str(self.place / "bin/python"), str(PROGRAMS / self.program)]
        if self.redis and not shutil.which("redis-server"):
            raise Unavailable("there is no redis-server here")

    def _run(self, *command: str, why: str) -> None:
        try:
            done = subprocess.run(command, cwd=self.place, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as e:
            raise Unavailable(f"{why}: {e}") from None
        if done.returncode:
            said = [line for line in (done.stderr + done.stdout).splitlines() if line.strip()]
            raise Unavailable(f"{why}: {said[-1] if said else f'exit code {done.returncode}'}")


def interpreters() -> dict[str, str]:
    """What the peers run on, by name."""
    asked = {
        "Python of the peers": (PYTHON, "--version"),
        "Node.js": ("node", "--version"),
        "Redis": ("redis-server", "-v"),
    }
    found = {}
    for name, command in asked.items():
        with contextlib.suppress(OSError):
            said = subprocess.run(command, capture_output=True, text=True).stdout
            if version := re.search(r"\d+(\.\d+)+", said):
                found[name] = version[0]
    return found


class Session:
    """A peer on an empty database of its own, and what its workers have said so far."""

    def __init__(self, rig: Rig, peer: Peer, setting: Setting, redis: str) -> None:
        self._rig, self._peer, self._setting = rig, peer, setting
        name = "peer"
        with rig.server.connect("postgres") as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")  # type: ignore[arg-type]
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
        self.meter = rig.place / "meter"
        shutil.rmtree(self.meter, ignore_errors=True)
        self.meter.mkdir()
        home = str(rig.server.socket.parent)
        self._env = {k: v for k, v in os.environ.items() if not k.startswith(("DJANGO_", "DATABASE_", "PYTHON"))}
        self._env |= {
            "BENCH_DSN": rig.server.url(name),
            "BENCH_HOST": home,
            "BENCH_DATABASE": name,
            "BENCH_METER": str(self.meter),
            "BENCH_SETTING": setting.key,
            "BENCH_PACKAGES": str(peer.place),
            "BENCH_REDIS": redis,
            "NODE_ENV": "production",
            **peer.env,
        }
        self.do("setup")

    def do(self, *args: object) -> None:
        """A command of its program, to its end."""
        done = subprocess.run(
            [*self._peer.command, *map(str, args)], env=self._env, cwd=PROGRAMS, capture_output=True, text=True
        )
        if done.returncode:
            raise Unavailable(f"its {args[0]} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")

    @contextlib.contextmanager
    def workers(self) -> Iterator[None]:
        """Its worker processes, until the end of the block."""
        with open(self.meter / "log", "w") as log:
            self._workers = [
                subprocess.Popen(
                    [*self._peer.command, "work", self._setting.key],
                    env=self._env,
                    cwd=PROGRAMS,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                for _ in range(self._setting.processes)
            ]
        try:
            yield
        finally:
            for one in self._workers:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(one.pid, signal.SIGKILL)
                one.wait()

    def wait(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Until the workers have done something; raises Unavailable when they do not, or have ended."""

        def look() -> bool:
            if any(one.poll() is not None for one in self._workers):
                raise AssertionError("a worker has ended")
            return condition()

        try:
            wait_until(look, what, seconds)
        except AssertionError as e:
            said = (self.meter / "log").read_text().strip().splitlines() or ["nothing"]
            raise Unavailable(f"{e}; it said: {said[-1]}") from None

    def ran(self) -> list[tuple[float, int, float]]:
        """(first job, jobs, when that was counted) of each process; their clocks are one."""
        found = []
        for path in self.meter.glob("ran-*"):
            lines = path.read_text().rpartition("\n")[0].splitlines()
            if lines:
                first, count, at = lines[-1].split()
                found.append((float(first), int(count), float(at)))
        return found

    def pickups(self) -> list[float]:
        """Milliseconds of each, in the order in which they were sent."""
        path = self.meter / "pickups"
        lines = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
        pairs: list[Any] = sorted(tuple(map(float, line.split())) for line in lines)
        return [(started - sent) * 1000 for sent, started in pairs]


def drain(session: Session, rig: Rig, jobs: int) -> float:
    """Jobs a second, from the first that ran to the last that ran (that it was recorded is left out, in its favour)."""
    session.do("bulk", jobs)
    with rig.connect(dbname="peer") as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")
    with session.workers():
        session.wait(lambda: sum(count for _, count, _ in session.ran()) >= jobs, f"{jobs} jobs to run", 900)
    ran = session.ran()
    return jobs / (max(at for _, _, at in ran) - min(first for first, _, _ in ran))


def pickup(session: Session, samples: int, pause: float, warm_up: int = 5) -> list[float]:
    """Milliseconds from the call to the start, of jobs that come one by one to workers with nothing to do."""
    with session.workers():
        session.do("send", 1, 0)
        session.wait(lambda: len(session.pickups()) >= 1, "the first job to start", 60)
        time.sleep(1)
        session.do("send", warm_up + samples, pause)
        session.wait(lambda: len(session.pickups()) >= 1 + warm_up + samples, "all jobs to start", 60)
    return session.pickups()[1 + warm_up :]


@contextlib.contextmanager
def redis_server(place: Path) -> Iterator[str]:
    """A Redis at its defaults, in a directory of its own; its URL. Empty when there is none here."""
    if not shutil.which("redis-server"):
        yield ""
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(place)],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, "Redis to start")
        yield f"redis://127.0.0.1:{port}/0"
    finally:
        process.terminate()
        process.wait(10)
