"""What any worker does with schedules that are due: give each its next time, and fire its ticks. Nothing is kept in memory.

Each schedule is one statement of its own, which names the state of the row that was read: of ten workers one writes, and
what is wrong with one schedule is written on that schedule.
"""

from __future__ import annotations

import datetime as dt
import logging
import random
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from django.conf import settings as django_settings
from django.db import DatabaseError

from .. import payload as json_payload
from .. import store
from ..api import enqueueing
from ..api.enqueueing import Enqueued
from ..api.registry import UNSET, registry
from ..conf import Settings
from ..store.calling import TRANSIENT, Connection
from .payloads import Payloads
from .rule import decide, rule_of

logger = logging.getLogger("pgjobs")

STRANGER = dt.timedelta(seconds=5)
"""A schedule whose kind or payload this code does not know is left to workers that do, for so long."""

STRANGERS_JOB = "its job waits for a program that runs it"

NOTHING = store.NewJob(kind="nothing", payload="{}", queue="default", priority=0, max_attempts=1, timeout=None)
"""The job where all that is due came too late."""

FIRST_PAUSE, LONGEST_PAUSE = 5.0, 300.0
"""Seconds until a schedule that met an error is tried again: the first time, doubled each time, at most."""

LONGEST_ERROR = 2000


class Firing:
    """Looks at what is due; :meth:`step` is called when something may be. ``enqueued`` is told of each job, and ``stopping``
    says that the rest is left to other workers."""

    def __init__(
        self,
        settings: Settings,
        payloads: Payloads,
        enqueued: Callable[[Enqueued], None],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._settings = settings
        self._payloads = payloads
        self._enqueued = enqueued
        self._stopping = stopping

    def step(self, connection: Connection) -> int:
        """Look at everything that is due; how many schedules were brought forward here."""
        moved = 0
        due = store.due_ticks(connection)
        random.shuffle(due)  # a thousand at midnight: the workers share them
        for schedule in due:
            if self._stopping():
                break
            try:
                moved += self._look(connection, schedule)
            except BaseException as e:  # noqa: BLE001 - one bad schedule never stops another; hooks of the user run here too
                # What is transient is no fault of the schedule.
                if getattr(e.__cause__, "sqlstate", None) not in TRANSIENT:
                    self._failed(connection, schedule, e)
        return moved

    def _look(self, connection: Connection, schedule: store.DueSchedule) -> bool:
        zone = schedule.timezone or django_settings.TIME_ZONE
        rule = rule_of(schedule, zone)
        if schedule.next_run_at is None:
            base = max(schedule.read_at, schedule.last_tick_at or schedule.read_at)
            return store.plan_tick(connection, schedule, rule.next(base), zone)
        decision = decide(
            rule,
            misfire=schedule.misfire,
            max_lateness=schedule.max_lateness,
            due=schedule.next_run_at,
            now=schedule.read_at,
            last_tick_at=schedule.last_tick_at,
        )
        times, following = decision.times, decision.following
        if schedule.payload_from and len(times) > 1:  # each has a payload of its own: one at a time
            times, following = times[:1], times[1]
        known = registry.find(schedule.kind) is not None or not times
        payload = self._payload(schedule, times[0]) if times else {}
        if payload is None or not (known or self._is_left_over(schedule)):
            return False
        new = enqueueing.prepare(schedule.kind, payload, queue=schedule.queue or UNSET).new if times else NOTHING
        ticked = store.tick(
            connection,
            schedule,
            new,
            times=times,
            missed=decision.missed,
            following=following,
            note="" if known else f"no handler of kind {schedule.kind!r} in the code: {STRANGERS_JOB}",
            once=not known,
            notify=self._settings.NOTIFY,
        )
        self._tell(schedule, new, ticked)
        return bool(ticked)

    def _payload(self, schedule: store.DueSchedule, scheduled_for: dt.datetime) -> Mapping[str, Any] | None:
        """The payload of a tick; None: not yet, or not here."""
        if not schedule.payload_from:
            return json_payload.loads(schedule.payload)
        _, declared = registry.schedules().get(schedule.name, (None, None))
        if declared is not None and declared.payload_from:
            return self._payloads.get(schedule.id, (schedule.revision, scheduled_for), declared)
        if self._is_left_over(schedule):
            raise LookupError(f"no worker here has the code that makes its payload, {schedule.payload_from}")
        return None

    def _is_left_over(self, schedule: store.DueSchedule) -> bool:
        """Whether workers with other code had their time to do it."""
        return schedule.read_at - schedule.due_since >= STRANGER

    def _tell(self, schedule: store.DueSchedule, new: store.NewJob, ticked: list[store.Ticked]) -> None:
        for scheduled_for, outcome, job_id in ticked:
            if outcome in ("skipped", "missed"):
                logger.warning("schedule %r: its tick of %s was %s", schedule.name, scheduled_for.isoformat(), outcome)
            else:
                logger.debug("schedule %r: its tick of %s is %s", schedule.name, scheduled_for.isoformat(), outcome)
            if job_id is not None:
                self._enqueued(Enqueued(job_id, True, "created", new.kind, new.queue, self._settings.DATABASE))

    def _failed(self, connection: Connection, schedule: store.DueSchedule, error: BaseException) -> None:
        self._payloads.forget(schedule.id)
        said = "".join(traceback.format_exception_only(error)).strip()
        pause = min(FIRST_PAUSE * 2.0 ** min(schedule.errors, 10), LONGEST_PAUSE)
        # When the database is what is wrong, this raises as well, and the worker's loop deals with it.
        # The rest of what a database says quotes the row, and with it a payload that not all may see.
        told = said.partition("\n")[0] if isinstance(error, DatabaseError) else said
        written = store.tick_failed(connection, schedule, json_payload.mend(told)[:LONGEST_ERROR], pause)
        if written and schedule.errors == 0:
            logger.error("schedule %r: %s", schedule.name, said, exc_info=error)
