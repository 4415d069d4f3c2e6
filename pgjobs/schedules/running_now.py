"""Run now: a separate job of a schedule, which itself is left alone."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from django.db import connections, transaction

from .. import payload as json_payload
from .. import signals, store
from ..api.enqueueing import Enqueued, prepare
from ..api.registry import UNSET
from ..conf import get_settings
from ..models import Schedule
from . import cron

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Ran:
    """The job that runs now; ``created`` is false when it is that of an earlier call with the same key."""

    job_id: int
    created: bool


def run_now(schedule: Schedule, *, key: str | None = None) -> Ran:
    """Store a job of the schedule, due at once, whose nominal time is now; paused and retired ones too.

    With ``key`` at most one until the schedule's next tick: a platform that calls twice, or in two places, gets the
    first call's job again.

    Raises EnqueueError, a ValueError, when the payload does not fit the handler, and for a key that cannot be stored.
    """
    settings = get_settings()
    if key is not None:
        key = json_payload.check_text(key, "key", 255)
    new = prepare(schedule.kind, payload_of(schedule), queue=UNSET if schedule.queue is None else schedule.queue).new
    connection = connections[settings.DATABASE]
    with transaction.atomic(using=settings.DATABASE):
        job_id, created = store.run_now(
            connection,
            schedule.pk,
            new,
            key=key,
            since=None if key is None else latest_tick(schedule, store.database_time(connection)),
            notify=settings.NOTIFY,
        )
    if created:
        handle = Enqueued(job_id, True, "created", new.kind, new.queue, settings.DATABASE)
        signals.send(signals.job_enqueued, new.kind, job=handle, attempt=0, exc_info=None)
    return Ran(job_id, created)


def payload_of(schedule: Schedule) -> dict[str, object]:
    return dict(schedule.payload)


def latest_tick(schedule: Schedule, now: dt.datetime) -> dt.datetime:
    """The latest nominal time up to now, whether it fired or not; the epoch when there was none since."""
    if schedule.every is not None:
        return EPOCH + (now - EPOCH) // schedule.every * schedule.every
    return cron.last_time(schedule.cron, schedule.timezone or "UTC", EPOCH, now) or EPOCH
