"""``manage.py run_jobs``: run jobs until told to stop."""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import logging
import os
import sys
import threading
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import connections
from django.utils import autoreload

from ...api.registry import registry
from ...conf import Settings, contradictions, get_settings
from ...exceptions import ConfigurationError
from ...schedules import sync
from ...worker.process import Options, Worker
from ...worker.supervisor import Supervisor

logger = logging.getLogger("pgjobs")


class Command(BaseCommand):
    """Parse, start a worker, print."""

    help = "Run jobs until told to stop. SIGTERM or SIGINT stops gracefully; a second one at once."
    requires_system_checks: list[str] = []  # noqa: RUF012 - the worker waits for a database that is not there yet

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--queue", action="append", type=name, metavar="NAME", help="serve this queue only; repeatable")
        add(
            "--exclude-queue",
            action="append",
            type=name,
            metavar="NAME",
            default=[],
            help="do not serve it; repeatable",
        )
        add("--processes", type=above_zero, metavar="N", help="worker processes (PGJOBS['PROCESSES'])")
        add("--threads", type=above_zero, metavar="N", help="handlers that run at once in each (PGJOBS['THREADS'])")
        add("--drain", action="store_true", help="run everything due that this worker can run, then exit")
        add("--max-jobs", type=above_zero, metavar="N", help="run so many jobs, then exit")
        add(
            "--poll-interval",
            type=seconds_above_zero,
            metavar="SECONDS",
            help="how often to look, listening or not (PGJOBS['POLL_INTERVAL'])",
        )
        add("--no-listen", action="store_true", help="poll only; behind a transaction pooler, for example")
        add(
            "--grace",
            type=seconds,
            metavar="SECONDS",
            help="how long to wait for running handlers when stopping (PGJOBS['GRACE'])",
        )
        add("--recycle-jobs", type=above_zero, metavar="N", help="replace a process after about so many jobs")
        add("--recycle-rss", type=above_zero, metavar="MIB", help="replace a process that holds so much memory")
        add(
            "--recycle-lifetime", type=seconds_above_zero, metavar="SECONDS", help="replace a process of about this age"
        )
        add("--database", metavar="ALIAS", help="alias of the database that holds the queue (PGJOBS['DATABASE'])")
        add("--reload", action="store_true", help="start anew when the code changes (for development)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            settings = effective(options)
        except ConfigurationError as e:
            raise CommandError(str(e)) from None
        if not registry.handlers():
            raise CommandError(
                "no handlers found: nothing to run. Write functions with @job in the jobs.py of an app in INSTALLED_APPS."
            )
        if problems := sync.problems():
            raise CommandError(" ".join(f"Schedule {name!r}: {problem}" for name, problem in problems))
        if options["queue"] and not set(options["queue"]) - set(options["exclude_queue"]):
            raise CommandError("every --queue is excluded by --exclude-queue: nothing to serve.")
        log_to_stderr(options["verbosity"])
        if django_settings.DEBUG:
            self.say("DEBUG is on: fine for development, slow and talkative in production.")
        if settings.DATABASE != (usual := get_settings().DATABASE):
            self.say(f"This worker serves the database alias {settings.DATABASE!r}; enqueue() writes to {usual!r}.")
        if options["verbosity"] > 1:
            for key, value in settings.effective().items():
                self.say(f"  {key} = {value}")
        what = Options(
            queues=options["queue"],
            exclude_queues=options["exclude_queue"],
            drain=options["drain"],
            max_jobs=options["max_jobs"],
            listen=not options["no_listen"],
            recycle_jobs=options["recycle_jobs"],
            recycle_rss=options["recycle_rss"],
            recycle_lifetime=options["recycle_lifetime"],
        )
        if options["reload"]:
            autoreload.run_with_reloader(self.run_reloading, settings, what)
        else:
            self.run(settings, what)

    def run(self, settings: Settings, what: Options) -> None:
        """Supervise worker processes; ends this one."""
        try:
            supervisor = Supervisor(settings, what, self.say)
        except ConfigurationError as e:
            raise CommandError(str(e)) from None
        code = supervisor.run()
        self.say("pgjobs stopped" + (f" with exit code {code}" if code else ""))
        end(code)

    def run_reloading(self, settings: Settings, what: Options) -> None:
        """Work in the reloader's thread; a change of the code, or the end of the process, stops it gracefully first."""
        worker = Worker(settings, what, self.say)
        stopped = threading.Event()

        def stop(**_: object) -> None:
            worker.stop()
            stopped.wait(settings.GRACE + 10)

        def on_change(sender: object, file_path: Any, **_: object) -> None:
            if str(file_path).endswith(".py"):
                stop()

        autoreload.file_changed.connect(on_change, weak=False)
        atexit.register(stop)
        try:
            worker.run()
        except ConfigurationError as e:
            self.say(str(e))
        finally:
            stopped.set()

    def say(self, line: str) -> None:
        """A line on standard output, at once."""
        self.stdout.write(line)
        self.stdout.flush()


def log_to_stderr(verbosity: int) -> None:
    """In a project that configures no logging the worker writes its log itself: what ended badly, and when."""
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    logger.addHandler(handler)
    if logger.level == logging.NOTSET:
        logger.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))


def end(code: int) -> None:
    """Leave the process, past threads that a handler left behind: what had to be done is done."""
    atexit._run_exitfuncs()
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def effective(options: dict[str, Any]) -> Settings:
    """Settings with what the command line says over them; raises ConfigurationError."""
    given = {
        "THREADS": options["threads"],
        "PROCESSES": options["processes"],
        "POLL_INTERVAL": options["poll_interval"],
        "LISTEN_POLL_INTERVAL": options["poll_interval"],
        "GRACE": options["grace"],
        "DATABASE": options["database"],
    }
    settings = dataclasses.replace(get_settings(), **{k: v for k, v in given.items() if v is not None})
    if problems := contradictions(settings):
        raise ConfigurationError(" ".join(problems))
    if settings.DATABASE not in connections.settings:
        raise ConfigurationError(
            f"{settings.DATABASE!r} is no alias of DATABASES; there are {', '.join(connections.settings)}."
        )
    vendor = connections[settings.DATABASE].vendor
    if vendor != "postgresql":
        raise ConfigurationError(f"the database {settings.DATABASE!r} is {vendor}; pgjobs needs PostgreSQL.")
    return settings


def name(text: str) -> str:
    """A queue's name."""
    if not 1 <= len(text.encode()) <= 255:
        raise argparse.ArgumentTypeError("a queue's name has 1 to 255 bytes")
    return text


def above_zero(text: str) -> int:
    """A whole number above zero."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number above zero")
    return int(text)


def seconds(text: str) -> float:
    """Seconds, zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def seconds_above_zero(text: str) -> float:
    """Seconds, more than zero."""
    if not seconds(text):
        raise argparse.ArgumentTypeError("has to be above zero")
    return float(text)
