"""Everything pgjobs raises, and what a handler may raise to end a run in a particular way.

::

    PgjobsError
    ├── ConfigurationError (ImproperlyConfigured)   settings, registration, start of a worker
    ├── EnqueueError (ValueError)                   a value that cannot be enqueued
    │   ├── PayloadTypeError (TypeError)            arguments that do not fit; a type that JSON lacks
    │   └── PayloadTooLarge                         over MAX_PAYLOAD_BYTES
    └── SchemaError                                 the database lacks the tables or functions

    Outcome                                         raised by handlers; not errors of pgjobs
    ├── Retry        again later; counts as an attempt
    ├── Snooze       again later; the attempt is given back
    ├── Fail         never again: a dead letter with status ``failed``
    └── Cancel       stop here: status ``cancelled``
"""

from __future__ import annotations

import datetime as dt

from django.core.exceptions import ImproperlyConfigured

Delay = float | int | dt.timedelta
"""Seconds, or a timedelta."""


class PgjobsError(Exception):
    """Base class of the errors that pgjobs raises."""


class ConfigurationError(PgjobsError, ImproperlyConfigured):
    """A setting, a registration or an option of the command that cannot work; the message says which and why."""


class EnqueueError(PgjobsError, ValueError):
    """A value that cannot be enqueued. Nothing was sent to the database: the caller's transaction is usable."""


class PayloadTypeError(EnqueueError, TypeError):
    """Unknown, missing or surplus arguments, or a value of a type that JSON does not have."""


class PayloadTooLarge(EnqueueError):
    """The payload is larger than ``PGJOBS["MAX_PAYLOAD_BYTES"]``."""


class SchemaError(PgjobsError):
    """The database lacks what this version of pgjobs needs; run ``manage.py migrate``."""


class Outcome(Exception):
    """Base class of what a handler raises to end its run in a particular way."""


class Retry(Outcome):
    """Run this job again after ``after`` (seconds or a timedelta; None: the handler's backoff).

    It counts as an attempt: at ``max_attempts`` the job is dead all the same.
    """

    def __init__(self, reason: str = "", *, after: Delay | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after = seconds(after, "Retry(after=…)")


class Snooze(Outcome):
    """Run this job again ``until`` (seconds, a timedelta, or an aware datetime); the attempt is given back."""

    def __init__(self, until: Delay | dt.datetime, reason: str = "") -> None:
        super().__init__(reason)
        if isinstance(until, dt.datetime):
            if until.tzinfo is None:
                raise ValueError("Snooze(until=…) needs an aware datetime; got a naive one. Use django.utils.timezone.")
            if not 1 < until.year < 9999:
                raise ValueError(f"Snooze(until=…) has to lie between the years 2 and 9998, not in {until.year}.")
            self.until: dt.datetime | float = until
        else:
            self.until = seconds(until, "Snooze(until=…)") or 0.0


class Fail(Outcome):
    """This job can never work: it ends as ``failed`` at once, whatever attempts are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "the handler said that this job can never work")


class Cancel(Outcome):
    """Stop here: the job ends as ``cancelled``."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "cancelled by its handler")


CENTURY = 36_525 * 86_400
"""In seconds; the tables' CHECKs hold longer durations for mistakes."""


def seconds(value: Delay | None, name: str) -> float | None:
    """A duration as seconds, or None for None. Raises ValueError for what is no finite duration of at least zero."""
    if value is None:
        return None
    if isinstance(value, dt.timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name} takes seconds or a timedelta; got {type(value).__name__}.")
    if not 0 <= value <= CENTURY:  # also false for NaN
        raise ValueError(f"{name} takes a duration from 0 to a century; got {value!r} seconds.")
    return float(value)
