"""What notifications cost 64 sessions that enqueue at once: with them over without, while workers are busy and while one sleeps.

*Busy*: the worker works off a backlog of a higher priority all the while. *Idle*: it sleeps throughout, since the jobs go into a
queue that it does not serve; every notification is sent, and nothing else happens. *Idle, and runs them*: it serves the queue, so
it also works beside the sessions; without notifications it does that at its next poll. Sessions: threads of a few processes that
call ``enqueue()``, and pgbench that calls ``pgjobs_enqueue`` (less work of a client's beside it).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .results import Bar, Row
from .rig import BASE_DIR, Rig

TITLE = "Notifications, 64 sessions at once"


@dataclass(frozen=True)
class Size:
    sessions: int = 64
    seconds: float = 10
    processes: int = 4
    backlog: int = 100_000


QUICK = Size(sessions=4, seconds=0.3, processes=1, backlog=500)

Way = Callable[[Rig, Size, bool], float]

SCRIPT = "SELECT id FROM pgjobs_enqueue('noop', '{\"n\": 1}', p_priority => -1, p_queue => 'sent');\n"


@contextlib.contextmanager
def worker(rig: Rig, size: Size, state: str) -> Iterator[None]:
    """One in that state."""
    rig.empty()
    if state == "busy":
        rig.fill(size.backlog, "nap", queue="'sent'")
        rig.query("UPDATE pgjobs_job SET payload = '{\"ms\": 20}'")
    with rig.worker(*(["--exclude-queue", "sent"] if state == "idle" else [])):
        rig.wait_asleep()
        yield


def clear(rig: Rig) -> None:
    """What was sent is gone; the backlog stays."""
    rig.query("DELETE FROM pgjobs_job WHERE kind = 'noop' AND status <> 'reserved'")
    rig.settle()


def by_pgbench(rig: Rig, size: Size, notify: bool) -> float:
    """Calls of ``pgjobs_enqueue`` a second."""
    script = rig.place / "enqueue.sql"
    script.write_text(SCRIPT)
    home = rig.server.socket.parent
    until = ("-T", str(round(size.seconds))) if size.seconds >= 1 else ("-t", "20")
    done = subprocess.run(
        [
            *(pgbench(rig), "-n", "-M", "prepared", "-f", script, "-h", home, "-p", "5432", "-U", "postgres"),
            *("-c", str(size.sessions), "-j", "2", *until, "jobs"),
        ],
        env=os.environ | ({} if notify else {"PGOPTIONS": "-c pgjobs.notify=off"}),
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert found, done.stdout
    return float(found[1])


def pgbench(rig: Rig) -> Path:
    return rig.server._cluster.binaries / "pgbench"


def by_enqueue(rig: Rig, size: Size, notify: bool) -> float:
    """Calls of ``enqueue()`` a second, from threads of some processes."""
    command = [sys.executable, "-m", "tests.bench.notify", str(size.sessions // size.processes), str(size.seconds)]
    some = [
        subprocess.Popen(
            command,
            env=os.environ | {"PGJOBS_NOTIFY": json.dumps(notify)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=BASE_DIR,
        )
        for _ in range(size.processes)
    ]
    for one in some:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    rates = [one.communicate("go\n")[0] for one in some]
    return sum(float(rate) for rate in rates)


def _session(go: threading.Event, seconds: float, calls: list[int]) -> None:
    from django.db import connection

    from .jobs import noop

    connection.ensure_connection()
    send = noop.using(queue="sent", priority=-1)
    go.wait()
    until, n = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        send.enqueue(n=n)
        n += 1
    calls.append(n)
    connection.close()


def main(sessions: int, seconds: float) -> None:
    """One of the processes: its calls a second, on standard output."""
    import django

    django.setup()
    go, calls = threading.Event(), []  # type: ignore[var-annotated]
    some = [threading.Thread(target=_session, args=(go, seconds, calls)) for _ in range(sessions)]
    for one in some:
        one.start()
    print("ready", flush=True)
    sys.stdin.readline()
    go.set()
    for one in some:
        one.join()
    print(sum(calls) / seconds)


def measure(rig: Rig, size: Size) -> list[Row]:
    ways = {"enqueue()": by_enqueue}
    if pgbench(rig).exists():
        ways["pgbench"] = by_pgbench
    else:
        rig.skipped.append(f"no pgbench beside this server ({pgbench(rig).parent})")
    bars = {"busy": Bar(0.90, aim=0.97), "idle": Bar(0.65, aim=0.85), "idle, and runs them": None}
    rows = []
    for state, bar in bars.items():
        with worker(rig, size, state):
            for what, way in ways.items():

                def once(notify: bool, way: Way = way) -> float:
                    clear(rig)
                    return way(rig, size, notify)

                rig.say(f"{what}, worker {state}")
                found = rig.in_turns("calls/s", on=partial(once, True), off=partial(once, False))
                rows.append(Row(f"{what}, {size.sessions} sessions, worker {state}", found["on"], found["off"], bar))
    return rows


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
