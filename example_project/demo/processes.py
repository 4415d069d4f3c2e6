"""The demo's processes: each is a `manage.py` command that a user could type, and none outlives the demo."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class DemoError(Exception):
    """The demo cannot go on; the message says why."""


class Stop:
    """The wish to stop. A signal only notes it, and the demo looks between its steps: no step is torn in the middle.

    That is what makes "nothing is left running" true at any moment. An exception out of a signal handler could come
    between the start of a process and the line that remembers it.
    """

    def __init__(self) -> None:
        self.signal: int | None = None
        self.hurry = False  # a second signal: do not wait for anybody
        self._wanted = threading.Event()

    def wait(self, seconds: float) -> bool:
        """Sleep, but no longer than until somebody wants to stop; whether that is so."""
        return self._wanted.wait(seconds)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.hurry = self.signal is not None
        self.signal = self.signal or signum
        self._wanted.set()

    @contextlib.contextmanager
    def on_signals(self) -> Iterator[Stop]:
        """Note signals here, until the block ends."""
        before: dict[int, Any] = {signum: signal.signal(signum, self._note) for signum in SIGNALS}
        try:
            yield self
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)


class Child:
    """A running `manage.py` command whose output goes to a file."""

    def __init__(self, name: str, command: Sequence[str], *, env: dict[str, str], grace: float) -> None:
        self.name, self.command, self._grace = name, command, grace
        self.log: Path = settings.VAR_DIR / f"demo-{name}.log"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(settings.BASE_DIR / "manage.py"), *command],
                env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A group of its own: Ctrl-C in a terminal goes to the demo alone. It would reach a worker in the same
                # group too, and our SIGTERM after it would be the second signal, at which a worker drops everything.
                process_group=0,
            )
        self.pid = self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def check(self) -> None:
        """Raise DemoError, with the end of its log, if it has ended."""
        if self.exit_code is not None:
            raise DemoError(
                f"The {self.name} has ended by itself, with exit code {self.exit_code}. "
                f"The end of {shown(self.log)}:\n{self.last_lines()}"
            )

    def last_lines(self, count: int = 20) -> str:
        return "\n".join(f"  | {line}" for line in self.log.read_text(errors="replace").splitlines()[-count:])

    def stop(self, stop: Stop) -> None:
        """SIGTERM, and wait for its end; SIGKILL to all of its group when it takes longer than it promised."""
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        deadline = time.monotonic() + self._grace + 10
        while self.exit_code is None and time.monotonic() < deadline and not stop.hurry:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody of it is left: the usual case
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def running(stop: Stop, name: str, *command: str, env: dict[str, str], grace: float = 0) -> Iterator[Child]:
    """A child that is stopped when the block ends, however it ends."""
    child = Child(name, command, env=env, grace=grace)
    try:
        yield child
    finally:
        child.stop(stop)


def shown(path: Path) -> str:
    """A path as short as it can be said."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
