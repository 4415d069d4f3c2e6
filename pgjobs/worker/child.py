"""What a supervisor knows of a process that it forked, and why one ended."""

from __future__ import annotations

import signal
import time
from dataclasses import dataclass, field

from .board import Board


@dataclass(slots=True, eq=False)
class Child:
    """One process that the supervisor forked."""

    pid: int
    place: int
    worker: str
    """Its name in the database; empty for an undertaker."""
    board: Board | None
    alone: bool = False
    started_at: float = field(default_factory=time.monotonic)
    killed_for: str = ""
    replaced: bool = False


def cause_of_death(code: int, killed_for: str) -> str:
    """Why a process ended, in words."""
    if killed_for:
        return f"worker killed: {killed_for}"
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        return f"worker died: {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    return f"worker died: exit code {code}"
