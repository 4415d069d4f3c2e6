"""How a run ended, as plain values; and the rules that turn an exception into an ending."""

from __future__ import annotations

import datetime as dt
import logging
from dataclasses import dataclass

import psycopg
from django.db import InterfaceError, OperationalError

from .. import backoff
from ..api.registry import Handler
from ..conf import Settings
from ..exceptions import Cancel, Fail, PayloadTypeError, Retry, Snooze
from ..store import ClaimedJob
from .failure import Failure, cut, describe

logger = logging.getLogger("pgjobs")


@dataclass(frozen=True, slots=True)
class Finish:
    """It returned; ``result`` is JSON text, ``note`` says why there is none though there should be."""

    result: str | None = None
    note: str | None = None


NOTHING = Finish()
"""It returned, and there is nothing to tell of it: as most do."""


@dataclass(frozen=True, slots=True)
class Finished:
    """It returned, and its finish is already part of its own transaction (``atomic=True``)."""


@dataclass(frozen=True, slots=True)
class RetryLater:
    """It failed, and attempts are left; ``delay`` in seconds."""

    failure: Failure
    delay: float
    exception: BaseException
    cause: str = "error"
    """``error`` or ``timeout``."""


@dataclass(frozen=True, slots=True)
class Bury:
    """It failed, and no attempt is left."""

    failure: Failure
    exception: BaseException
    cause: str = "error"


@dataclass(frozen=True, slots=True)
class FailForGood:
    """It can never work."""

    failure: Failure
    exception: BaseException


@dataclass(frozen=True, slots=True)
class SnoozeUntil:
    """It wants to run later, and that is no failure."""

    until: dt.datetime | float
    reason: str


@dataclass(frozen=True, slots=True)
class CancelHeld:
    """It said stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class Release:
    """It was interrupted through no fault of its own: again at once, the attempt given back (five times at most)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Lost:
    """Its lease was lost while it ran, and it knows: nothing to record."""


Outcome = Finish | Finished | RetryLater | Bury | FailForGood | SnoozeUntil | CancelHeld | Release | Lost


def weight(outcome: Outcome) -> int:
    """About how many bytes it holds."""
    return len(outcome.result) if isinstance(outcome, Finish) and outcome.result is not None else 0


def of_exception(
    error: BaseException, job: ClaimedJob, handler: Handler, settings: Settings, *, skip: int = 0
) -> Outcome:
    """The ending that an exception means. Never raises."""
    try:
        return _meant(error, job, handler, settings, skip)
    except BaseException:
        logger.exception("an exception of job %d does not say what it is; it counts as an ordinary failure", job.id)
        failure = describe(error, skip=skip)
        if job.attempt >= job.max_attempts:
            return Bury(failure, error)
        return RetryLater(failure, backoff.delay(settings.BACKOFF, job.attempt), error)


def _meant(error: BaseException, job: ClaimedJob, handler: Handler, settings: Settings, skip: int) -> Outcome:
    if isinstance(error, Snooze):
        return SnoozeUntil(error.until, cut(_text(error), 1000))
    if isinstance(error, Cancel):
        return CancelHeld(cut(_text(error), 1000))
    failure = describe(error, skip=skip)
    if isinstance(error, (Fail, *handler.discard_on)):
        return FailForGood(failure, error)
    if not isinstance(error, Retry) and handler.retry_on is not None and not isinstance(error, handler.retry_on):
        return FailForGood(failure, error)
    if job.attempt >= job.max_attempts:
        return Bury(failure, error)
    after = error.after if isinstance(error, Retry) else None
    return RetryLater(failure, pause(job, handler, settings) if after is None else after, error)


def of_stopped(
    told: str, error: BaseException | None, job: ClaimedJob, handler: Handler | None, settings: Settings
) -> Outcome:
    """The ending of a handler that was told to stop (``timeout`` or ``cancel``) and did, or is stuck (no ``error``)."""
    if told == "cancel":
        return CancelHeld("cancelled while it ran")
    text = f"timed out: it ran longer than its {job.timeout:g} s" + ("" if error else ", and does not stop")
    told_as: BaseException = error if error is not None else TimeoutError(text)
    seen = describe(told_as)
    failure = Failure("pgjobs.Timeout", text, seen.traceback if error is not None else "")
    if job.attempt >= job.max_attempts:
        return Bury(failure, told_as, "timeout")
    delay = pause(job, handler, settings) if handler else backoff.delay(settings.BACKOFF, job.attempt)
    return RetryLater(failure, delay, told_as, "timeout")


def excused(ended: Outcome) -> Outcome:
    """The ending, when the database went away under the job: a failure that is only a lost connection is no failure."""
    if isinstance(ended, (RetryLater, Bury)) and any(
        map(_lost_connection, (ended.exception, ended.exception.__cause__))
    ):
        return Release(cut(f"interrupted: the database went away ({ended.failure.error})", 1000))
    return ended


def _lost_connection(error: BaseException | None) -> bool:
    """Whether an error says that the server closed the connection, or could not be reached (SQLSTATE 08…, 57P0…, or none)."""
    if not isinstance(error, (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)):
        return False
    code = getattr(error, "sqlstate", None) or getattr(error.__cause__, "sqlstate", None)
    return code is None or code[:2] == "08" or code[:4] == "57P0"


def misfit(error: PayloadTypeError) -> Outcome:
    """The payload cannot fit the handler: trying again changes nothing."""
    return FailForGood(describe(error), error)


def pause(job: ClaimedJob, handler: Handler, settings: Settings) -> float:
    """Seconds until the next attempt; a faulty backoff of the handler falls back to the setting, and is logged."""
    if handler.backoff is not None:
        try:
            return backoff.delay(handler.backoff, job.attempt)
        except BaseException:
            logger.exception("the backoff of %s raised or answered nonsense; the default one is used", handler.where)
    return backoff.delay(settings.BACKOFF, job.attempt)


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - a subclass may do anything
        return ""
