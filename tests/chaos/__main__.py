"""Run the chaos test: ``python -m tests.chaos --minutes 5 --seed 7``. Exits with 1 when a promise was broken."""

from __future__ import annotations

import argparse
import os
import pickle
import random
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.private_server import Server

from . import journal, moves
from .plan import Card, make_plan

DRAIN = 180.0
"""Seconds in which everything has to have ended after the last trouble, beside a third of the time that troubles lasted: what
ran in crashed processes runs one by one, and some of it crashes again."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5, help="how long it lasts, about (0.5 is the short form)")
    parser.add_argument("--seed", type=int, help="of the plan of troubles; random when not given")
    parser.add_argument("--supervisors", type=int, default=2)
    parser.add_argument("--plan", action="store_true", help="print the plan, and end")
    parser.add_argument(
        "--check", type=Path, metavar="FILE", help="read the history of an earlier test (it is kept) again"
    )
    parser.add_argument("--keep", action="store_true", help="keep the logs and the journal, also when all is well")
    options = parser.parse_args()
    if options.check:
        return _check_again(options.check)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    # A test of half a minute spends a third of it on starting and draining.
    plan = make_plan(seed, max(8.0, options.minutes * 60 - 16))
    if options.plan:
        print(*plan, sep="\n")
        return 0
    place = Path(tempfile.mkdtemp(prefix="pgjobs-chaos-"))
    print(f"seed {seed}, {len(plan)} troubles; logs in {place}", flush=True)
    asked: list[int] = []
    _on_signals(lambda number, _: asked.append(number))  # what is started is to be known, before anything ends it
    server = Server()
    try:
        _on_signals(_interrupt)
        if asked:
            raise KeyboardInterrupt
        server.create_database("jobs")
        os.environ |= {
            "DATABASE_URL": server.url(),
            "DJANGO_SETTINGS_MODULE": "tests.chaos.settings",
            journal.VARIABLE: str(place / "journal.jsonl"),
        }
        well = _play(server, place, plan, seed, options.supervisors)
    except KeyboardInterrupt:
        print(f"interrupted: seed {seed}; logs in {place}")
        return 130
    finally:
        _on_signals(signal.SIG_IGN)  # what we started is ended, whatever comes
        server.remove()
    if well and not options.keep:
        shutil.rmtree(place)
    print("all promises were kept" if well else f"FAILED: seed {seed}; logs in {place}")
    return 0 if well else 1


def _on_signals(do: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, do)


def _interrupt(*_: object) -> None:
    """SIGTERM is met as Ctrl-C is: nothing is left running."""
    raise KeyboardInterrupt


def _check_again(path: Path) -> int:
    from . import report
    from .checker import check

    what = pickle.loads(path.read_bytes())  # noqa: S301 - our own
    violations = check(what)
    print(*report.failures(what, violations), sep="\n")
    return 1 if violations else 0


def _play(server: Server, place: Path, plan: list[Card], seed: int, size: int) -> bool:
    """The whole of it; whether every promise was kept."""
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)
    with server.connect() as connection:
        connection.execute(moves.INSTALL)  # type: ignore[arg-type]

    from pgjobs.conf import get_settings

    from . import history, report
    from .actors import Enqueuer, Known, Operator
    from .checker import check
    from .fleet import Fleet
    from .overlaps import killed
    from .troubles import Troubles

    settings = get_settings()
    known, fleet = Known(), Fleet(place, size)
    operator = Operator(seed, known)
    actors = [operator, *(Enqueuer(seed + n, known) for n in range(1, 4))]
    troubles = Troubles(server, fleet, settings.LEASE, operator.pause_for)
    complaints: list[str] = []
    began = time.monotonic()
    try:
        fleet.fill()
        for actor in actors:
            actor.start()
        troubles.play(plan)
        lasted = time.monotonic() - began
        for actor in actors:
            actor.stop()
        _drain(server, DRAIN + lasted / 3, complaints)
        for one in fleet.working:
            fleet.stop(one, 30)
    finally:
        _on_signals(signal.SIG_IGN)  # what we started is ended, whatever comes
        troubles.end()
        fleet.end()
    complaints += fleet.complaints + troubles.failed + [actor.failed for actor in actors if actor.failed]
    with server.connect() as connection:
        what = history.read(
            connection,
            place / "journal.jsonl",
            troubles=troubles.happened,
            created=known.created,
            gone=dict(fleet.gone),
            wishes=known.wishes,
            pauses=known.pauses,
            lease=settings.LEASE,
            heartbeat=settings.HEARTBEAT,
        )
    for log, code, pids in fleet.exits:
        # 75: it says that it could not give everything back; 70: a process of it died, for which there has to be a cause.
        # One without processes was told to stop before it could listen to that.
        early = code == -signal.SIGTERM and len(pids) == 1
        if code not in (0, 75) and not early and not any(killed(what, pid, time.time()) for pid in pids):
            complaints.append(f"{log}: exit code {code} after SIGTERM")
    (place / "history.pickle").write_bytes(pickle.dumps(what))
    violations = check(what)
    print(*report.summary(what, lasted), sep="\n")
    print("asked: " + ", ".join(f"{what} {n}" for what, n in sorted(known.done.items())))
    print(f"{time.monotonic() - began:.0f} s in all")
    print(*(f"BROKEN: {complaint}" for complaint in complaints), *report.failures(what, violations), sep="\n")
    return not violations and not complaints


def _drain(server: Server, seconds: float, complaints: list[str]) -> None:
    """Wait until everything has ended. What waits for a backoff is told to hurry."""
    from .actors import hurry, insist

    deadline = time.monotonic() + seconds
    with server.connect() as connection:
        while time.monotonic() < deadline:
            later = connection.execute(
                "SELECT id FROM pgjobs_job WHERE status = 'pending' AND run_after > now() + interval '1 s'"
            ).fetchall()
            insist(lambda ids=[id_ for (id_,) in later]: hurry(ids))  # type: ignore[misc]
            [(live, wishes)] = connection.execute(
                "SELECT (SELECT count(*) FROM pgjobs_job WHERE status IN ('pending', 'reserved')),"
                " (SELECT count(*) FROM pgjobs_rerun)"
            ).fetchall()
            if not live and not wishes:
                return
            time.sleep(0.1)
        complaints.append(f"{live} jobs and {wishes} wishes have not ended {seconds:.0f} s after the last trouble")


if __name__ == "__main__":
    sys.exit(main())
