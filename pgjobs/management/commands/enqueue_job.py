"""``manage.py enqueue_job KIND``: one job from a shell, a crontab or a systemd timer."""

from __future__ import annotations

import datetime as dt
import difflib
import json
import re
import sys
from typing import Any

from django.conf import settings as django_settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import InterfaceError, OperationalError
from django.utils import timezone
from django.utils.dateparse import parse_datetime

from ...api.enqueueing import enqueue
from ...api.registry import UNSET, registry
from ...exceptions import ConfigurationError, EnqueueError, SchemaError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


class Command(BaseCommand):
    """Parse, enqueue, print. Exit code 0: the job is stored (or its dedupe key is held); 1: nothing was; 2: usage."""

    help = "Enqueue one job. Prints its id; exits with 0 when it is stored or its dedupe key is held already."
    requires_system_checks: list[str] = []  # noqa: RUF012 - a crontab wants to be quick

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("kind", help="the handler's kind: its function's name, unless it says otherwise")
        add("--payload", default="{}", metavar="JSON", help="the arguments, a JSON object; - reads standard input")
        add("--queue", help="instead of the handler's")
        add("--priority", type=int, help="from -100 to 100, the highest first")
        add("--run-after", metavar="WHEN", help="a delay (90, 90s, 15m, 2h, 1d) or a time (2026-12-24T18:00+01:00)")
        add("--dedupe-key", metavar="KEY", help="at most one live job of this kind and key")
        add("--on-conflict", choices=["keep", "replace", "rerun"], default="keep", help="what a held key means")
        add("--max-attempts", type=int, metavar="N", help="the first run counts")
        add("--timeout", metavar="SECONDS", help="a duration like a delay, or none")
        add("--expires-at", metavar="WHEN", help="like --run-after; a job that has not started by then is cancelled")
        add("--meta", metavar="JSON", help="a JSON object that is kept beside the payload")
        add("--unknown-kind", action="store_true", help="the kind has no handler here: other code runs it")
        add("--database", metavar="ALIAS", help="alias of the database that holds the queue (PGJOBS['DATABASE'])")
        add("--json", action="store_true", help="print an object: id, created, action, kind, queue")

    def handle(self, *args: Any, **options: Any) -> None:
        kind = options["kind"]
        if registry.find(kind) is None and not options["unknown_kind"]:
            raise CommandError(_unknown(kind))
        try:
            handle = enqueue(
                kind,
                _object(_standard_input() if options["payload"] == "-" else options["payload"], "--payload"),
                queue=_given(options["queue"]),
                priority=_given(options["priority"]),
                run_after=_when(options["run_after"], "--run-after"),
                dedupe_key=options["dedupe_key"],
                on_conflict=options["on_conflict"],
                max_attempts=_given(options["max_attempts"]),
                timeout=_timeout(options["timeout"]),
                expires_at=_moment(_when(options["expires_at"], "--expires-at")),
                meta=None if options["meta"] is None else _object(options["meta"], "--meta"),
                using=options["database"],
            )
        except (EnqueueError, SchemaError, ConfigurationError) as e:
            raise CommandError(str(e)) from None
        except (OperationalError, InterfaceError) as e:
            raise CommandError(f"the database cannot be reached, so nothing was enqueued: {str(e).strip()}") from None
        if options["json"]:
            said = {name: getattr(handle, name) for name in ("id", "created", "action", "kind", "queue")}
            self.stdout.write(json.dumps(said, ensure_ascii=False))
        elif options["verbosity"]:
            self.stdout.write(f"{handle.id} {handle.kind} {handle.action}")


def _given(value: Any) -> Any:
    return UNSET if value is None else value


def _unknown(kind: str) -> str:
    close = difflib.get_close_matches(kind, registry.kinds(), n=1)
    hint = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(registry.kinds()) or 'none'}."
    return f"no handler is called {kind!r}. {hint} For a kind that other code runs, add --unknown-kind."


def _standard_input() -> str:
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as e:
        raise CommandError(
            f"--payload: standard input is no text in {e.encoding}: {e.reason} at byte {e.start}"
        ) from None


def _object(text: str, option: str) -> dict[str, Any]:
    """A JSON object. Raises CommandError that says where it cannot be read."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise CommandError(f"{option}: is nested too deeply") from None
    except ValueError as e:
        raise CommandError(
            f"{option}: not JSON: {e}. In a shell, put it in single quotes: {option} '{{\"name\": 1}}'"
        ) from None
    if not isinstance(value, dict):
        raise CommandError(f"{option}: has to be a JSON object, not {text[:40]!r}")
    return value


def _seconds(text: str) -> float | None:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text.strip())
    return float(found[1]) * UNITS[found[2] or "s"] if found else None


def _when(text: str | None, option: str) -> dt.datetime | float | None:
    """A delay in seconds, or a time: aware under USE_TZ, in TIME_ZONE when it names none."""
    if text is None or (delay := _seconds(text)) is not None:
        return None if text is None else delay
    try:
        time = parse_datetime(text.strip())
    except ValueError:
        time = None
    if time is None:
        raise CommandError(
            f"{option}: {text!r} is neither a delay (90, 15m, 2h, 1d) nor a time (2026-12-24T18:00+01:00)"
        )
    try:
        if django_settings.USE_TZ and timezone.is_naive(time):
            return timezone.make_aware(time)
        if not django_settings.USE_TZ and timezone.is_aware(time):
            return timezone.make_naive(time)
    except OverflowError:
        raise CommandError(f"{option}: {text!r} lies beyond the calendar") from None
    return time


def _moment(when: dt.datetime | float | None) -> dt.datetime | None:
    """A delay counted from now: by this machine's clock, which is near enough for the end of a job's use."""
    if not isinstance(when, float):
        return when
    now = timezone.now() if django_settings.USE_TZ else dt.datetime.now()  # noqa: DTZ005 - as Django reads times then
    try:
        return now + dt.timedelta(seconds=when)
    except OverflowError:
        raise CommandError(f"--expires-at: {when:g} seconds lie beyond the calendar") from None


def _timeout(text: str | None) -> Any:
    if text is None or text == "none":
        return UNSET if text is None else None
    if (limit := _seconds(text)) is None:
        raise CommandError(f"--timeout: {text!r} is no duration (90, 15m, 2h), nor none")
    return limit
