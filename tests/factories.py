"""Rows that could have come about: constraints hold, and what belongs to a state is there, history too.

Times are by the clock of this machine. A database elsewhere may be some seconds apart, so they lie far enough from now.

    JobFactory()                           pending, due
    JobFactory(dead=True, attempts=3)      dead after three attempts, with a row of history for each
    JobFactory(reserved=True, worker="w-1", lease=77)
"""

from __future__ import annotations

import datetime as dt
import random
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from pgjobs.models import Attempt, Job, Pause, Rerun, Worker
from pgjobs.states import FINAL


def ago(**delta: float) -> Any:
    """A time before now, when the row is made."""
    return factory.LazyFunction(lambda: timezone.now() - dt.timedelta(**delta))


def ahead(**delta: float) -> Any:
    return factory.LazyFunction(lambda: timezone.now() + dt.timedelta(**delta))


class AttemptFactory(DjangoModelFactory):
    """One attempt that did not end well."""

    class Meta:
        model = Attempt

    attempt = 1
    outcome = "error"
    error_class = "builtins.ValueError"
    error = "boom"
    traceback = "Traceback (most recent call last):\nValueError: boom"
    worker = "w-1"
    started_at = ago(minutes=2)
    finished_at = ago(minutes=1)


class JobFactory(DjangoModelFactory):
    """A job; without a trait it is pending and due."""

    class Meta:
        model = Job
        skip_postgeneration_save = True

    class Params:
        # pending
        scheduled = factory.Trait(run_after=ahead(hours=1))
        retrying = factory.Trait(
            ran=True, attempts=1, last_error="boom", error_class="builtins.ValueError", run_after=ahead(hours=1)
        )
        snoozed = factory.Trait(
            snoozes=1,
            run_after=ahead(hours=1),
            started_at=ago(minutes=2),
            last_attempted_at=ago(minutes=2),
            worker="w-1",
        )
        released = factory.Trait(refunds=1, worker="w-1")
        expired = factory.Trait(expires_at=ago(minutes=1))
        # reserved
        held = factory.Trait(
            ran=True,
            status="reserved",
            run_after=ago(minutes=4),
            attempts=1,
            lease=factory.LazyFunction(lambda: random.getrandbits(63)),
            reserved_by=factory.SelfAttribute("worker"),
            reserved_at=factory.SelfAttribute("last_attempted_at"),
        )
        reserved = factory.Trait(held=True, reserved_until=ahead(hours=1))
        lapsed = factory.Trait(held=True, reserved_until=ago(seconds=30))
        cancel_requested = factory.Trait(reserved=True, cancel_requested_at=ago(seconds=10))
        # final
        done = factory.Trait(
            ran=True,
            status="done",
            run_after=ago(minutes=4),
            attempts=1,
            result=factory.LazyFunction(lambda: {"ok": True}),
            finished_at=ago(minutes=1),
        )
        failed = factory.Trait(
            ran=True,
            status="failed",
            run_after=ago(minutes=4),
            attempts=1,
            last_error="never",
            error_class="pgjobs.Fail",
            finished_at=ago(minutes=1),
        )
        dead = factory.Trait(
            ran=True,
            status="dead",
            run_after=ago(minutes=4),
            attempts=2,
            max_attempts=factory.SelfAttribute("attempts"),
            last_error="boom",
            error_class="builtins.ValueError",
            finished_at=ago(minutes=1),
        )
        cancelled = factory.Trait(status="cancelled", last_error="cancelled by somebody", finished_at=ago(minutes=1))
        lapsed_unused = factory.Trait(  # expired before anybody ran it
            status="cancelled", last_error="expired", expires_at=ago(minutes=2), finished_at=ago(minutes=1)
        )
        # what a job that was claimed at least once has
        ran = factory.Trait(
            worker="w-1",
            worker_ids=factory.LazyAttribute(lambda o: [o.worker] * min(o.attempts, 32)),
            started_at=ago(minutes=3),
            last_attempted_at=ago(minutes=2),
        )

    kind = "scripted"
    payload = factory.LazyFunction(dict)

    @factory.post_generation
    def history(self: Any, create: bool, extracted: bool | None, **_: Any) -> None:
        """A row for each attempt that ended badly; ``history=False``: none."""
        if not create or extracted is False or not isinstance(self.attempts, int):
            return
        good = self.status in ("done", "reserved")  # its last attempt did not end badly
        for number in range(1, self.attempts + (0 if good else 1)):
            last = number == self.attempts
            AttemptFactory(
                job=self,
                attempt=number,
                outcome={"failed": "failed", "cancelled": "cancelled"}.get(self.status, "error") if last else "error",
                error=(self.last_error or "boom") if last else "boom",
                worker=self.worker or "w-1",
            )


TRAITS = (
    "scheduled", "retrying", "snoozed", "released", "expired", "reserved", "lapsed", "cancel_requested",
    "done", "failed", "dead", "cancelled", "lapsed_unused",
)  # fmt: skip
"""Every state of a job that a trait makes; without one it is pending."""

FINAL_TRAITS = tuple(str(status) for status in FINAL)


class PauseFactory(DjangoModelFactory):
    class Meta:
        model = Pause

    scope = "queue"
    name = "default"


class RerunFactory(DjangoModelFactory):
    """A wish that waits for the end of a holder."""

    class Meta:
        model = Rerun

    kind = "scripted"
    dedupe_key = factory.Sequence("key-{}".format)
    queue = "default"
    payload = factory.LazyFunction(lambda: {"wish": True})
    priority = 0
    run_after = ago(minutes=1)
    max_attempts = 10
    timeout = dt.timedelta(minutes=5)
    expires_at = None
    meta = None
    parent_id = None


class WorkerFactory(DjangoModelFactory):
    class Meta:
        model = Worker

    name = factory.Sequence("w-{}".format)
    host = "localhost"
    pid = 4711
    threads = 4
