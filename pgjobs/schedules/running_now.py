"""Run now: a separate job of a schedule, which itself is left alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings as django_settings
from django.db import connections, transaction

from .. import payload as json_payload
from .. import signals, store
from ..api.enqueueing import Enqueued, prepare
from ..api.registry import UNSET, registry
from ..conf import get_settings
from ..exceptions import EnqueueError
from ..models import Schedule
from .rule import EPOCH, rule_of


@dataclass(frozen=True, slots=True)
class Ran:
    """The job that runs now; ``created`` is false when it is that of an earlier call with the same key."""

    job_id: int
    created: bool


def run_now(schedule: Schedule, *, key: str | None = None) -> Ran:
    """Store a job of the schedule, due at once, whose nominal time is now; of paused and retired ones too.

    With ``key`` at most one until the schedule's next tick: a platform that calls twice, or in two places, gets the
    first call's job again.

    Raises EnqueueError, a ValueError, when the payload does not fit the handler or cannot be made here, and for a key that
    cannot be stored.
    """
    settings = get_settings()
    if key is not None:
        key = json_payload.check_text(key, "key", 255)
    connection = connections[settings.DATABASE]
    now = store.database_time(connection)
    queue = UNSET if schedule.queue is None else schedule.queue
    new = prepare(schedule.kind, _payload(schedule, now), queue=queue).new
    since = None if key is None else _latest_tick(schedule, now)
    with transaction.atomic(using=settings.DATABASE):
        job_id, created = store.run_now(
            connection, schedule.pk, new, scheduled_for=now, key=key, since=since, notify=settings.NOTIFY
        )
    if created:
        handle = Enqueued(job_id, True, "created", new.kind, new.queue, settings.DATABASE)
        signals.send(signals.job_enqueued, new.kind, job=handle, attempt=0, exc_info=None)
    return Ran(job_id, created)


def _payload(schedule: Schedule, now: dt.datetime) -> Mapping[str, Any]:
    if not schedule.payload_from:
        if not isinstance(schedule.payload, dict):
            raise EnqueueError(json_payload.UNREADABLE)
        return dict(schedule.payload)
    _, declared = registry.schedules().get(schedule.name, (None, None))
    if declared is None or not declared.payload_from:
        raise EnqueueError(f"the code here does not have {schedule.payload_from}, which makes the payload.")
    try:
        return declared.make_payload(now)
    except Exception as e:  # whatever the project's code raises
        raise EnqueueError(f"{schedule.payload_from}, which makes the payload, raised {type(e).__name__}: {e}") from e


def _latest_tick(schedule: Schedule, now: dt.datetime) -> dt.datetime:
    """The latest nominal time up to now, whether it fired or not; the epoch when there was none since."""
    return rule_of(schedule, django_settings.TIME_ZONE).last(EPOCH, now) or EPOCH
