"""``manage.py jobs_bench``: how fast jobs go in, run and start on this project's own server."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import threading
from collections.abc import Iterator
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections

from ... import store
from ...conf import get_settings
from .. import bench
from ..floor import Floor, may_create
from .run_jobs import above_zero, effective, log_to_stderr


class Command(BaseCommand):
    """Parse, measure, print."""

    help = (
        "Measure this project's own server in about a minute: how fast jobs are enqueued and run, how soon one starts, beside "
        "the same work in bare SQL. The jobs do nothing, are of a kind and in a queue of their own, and are removed at the end; "
        "no other job is touched. Signals are sent for them as for any job."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--jobs", type=above_zero, default=20_000, metavar="N", help="jobs of the drain (default: 20000)")
        add("--samples", type=above_zero, default=200, metavar="N", help="jobs that are picked up (default: 200)")
        add("--processes", type=above_zero, default=1, metavar="N", help="worker processes (default: 1)")
        add("--threads", type=above_zero, metavar="N", help="threads of each (PGJOBS['THREADS'])")
        add("--no-floor", action="store_true", help="leave the bare SQL out: no table is created")
        add("--database", metavar="ALIAS", help="alias of the database that holds the queue (PGJOBS['DATABASE'])")
        add("--json", action="store_true", help="print JSON, not a table")

    def handle(self, *args: Any, **options: Any) -> None:
        given = {"poll_interval": None, "grace": None}
        settings = effective({**options, **given, "processes": None})
        if get_settings().QUEUES is not None:
            raise CommandError(
                "PGJOBS['QUEUES'] allows no queue of this command's own; for this run: PGJOBS_QUEUES=null manage.py jobs_bench"
            )
        if problem := store.schema_problem(connections[settings.DATABASE]):
            raise CommandError(f"the database alias {settings.DATABASE!r} is not ready for pgjobs: {problem}.")
        log_to_stderr(0)
        if django_settings.DEBUG:
            self.say("DEBUG is on: every statement is kept, so that these figures are lower than those of production")
        version = store.server(connections[settings.DATABASE]).version
        with told_once(), contextlib.ExitStack() as stack:
            floor = None
            if not options["no_floor"] and not may_create(settings.DATABASE):
                self.say("this role may create no table: the bare SQL is left out")
            elif not options["no_floor"]:
                floor = stack.enter_context(Floor(settings.DATABASE))
            what = {name: options[name] for name in ("jobs", "samples", "processes")}
            figures = []
            try:
                for figure in bench.run(settings, **what, floor=floor, say=self.say):
                    figures.append(figure)
                    self.say(f"  {figure.name}: {amount(figure.pgjobs, figure.unit)}")
            except bench.WorkerDied as e:
                raise CommandError(str(e)) from None
        if options["json"]:
            rows = [dataclasses.asdict(figure) | {"ratio": figure.ratio} for figure in figures]
            self.stdout.write(json.dumps({"postgresql": version, **what, "figures": rows}, indent=2))
        else:
            self.stdout.write(table(figures, version))

    def say(self, line: str) -> None:
        """Progress goes to standard error: standard output is for the result."""
        self.stderr.write(line, self.style.NOTICE)
        self.stderr.flush()


@contextlib.contextmanager
def told_once() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does; once told, a second signal does not cut the tidying up short."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    try:
        for one in before:
            signal.signal(one, end)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def amount(value: float | None, unit: str) -> str:
    """With its unit, as a reader wants it."""
    if value is None:
        return "–"
    return f"{value:,.0f} /s" if unit == "/s" else f"{value:.2f} ms"


def table(figures: list[bench.Figure], version: str) -> str:
    """For people."""
    head = ("", "pgjobs", "bare SQL", "ratio")
    rows = [
        (f.name, amount(f.pgjobs, f.unit), amount(f.bare, f.unit), "–" if f.ratio is None else f"{f.ratio:.2f}")
        for f in figures
    ]
    widths = [max(len(row[n]) for row in (head, *rows)) for n in range(4)]
    lines = [
        "  ".join(
            cell.ljust(w) if n == 0 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    ]
    return "\n".join([f"PostgreSQL {version}", *lines])
