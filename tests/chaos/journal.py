"""What ran when, as the handlers saw it: lines of JSON that a file keeps, whatever happens to the process or the database.

Times are those of the machine's clock, which is also the server's. A line is one write to a file opened for appending: it
is there whole or not at all, and survives SIGKILL.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

VARIABLE = "CHAOS_JOURNAL"
"""The environment variable that names the file."""


def write(what: str, **more: Any) -> None:
    """Add a line."""
    line = json.dumps({"what": what, "at": time.time(), "pid": os.getpid(), **more}) + "\n"
    descriptor = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read(path: Path) -> list[dict[str, Any]]:
    """All lines, in the order of their times."""
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return sorted(lines, key=lambda line: line["at"])
