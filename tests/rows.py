# ruff: noqa: A002 - parameters are named like the columns
"""Looking at rows, and what a call changed in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from django.db import connection

from pgjobs import store
from pgjobs.models import Attempt, Job, Rerun
from pgjobs.store import ClaimedJob

from .factories import JobFactory

LEASE_FIELDS = {"lease", "reserved_by", "reserved_at", "reserved_until"}
"""What a holder's row has, and any other has not (reserved_at is kept with them)."""


def columns(id: int) -> dict[str, Any]:
    """The whole row."""
    return Job.objects.filter(pk=id).values().get()


@contextlib.contextmanager
def changes(id: int) -> Iterator[dict[str, Any]]:
    """Afterwards: each column that the block changed, with its new value; ``updated_at`` is expected, and left out."""
    before = columns(id)
    changed: dict[str, Any] = {}
    yield changed
    after = columns(id)
    changed |= {name: value for name, value in after.items() if value != before[name]}
    if changed:
        assert "updated_at" in changed, "a verb sets updated_at itself"
        assert changed.pop("updated_at") > before["updated_at"]


@contextlib.contextmanager
def nothing_changes() -> Iterator[None]:
    """The block leaves every job, every wish and the whole history as they were."""
    before = everything()
    yield
    assert everything() == before


def everything() -> list[Any]:
    return [list(model.objects.order_by("id").values()) for model in (Job, Attempt, Rerun)]


def claim(limit: int = 10, worker: str = "w-1", *, lease: float = 15, **options: Any) -> list[ClaimedJob]:
    """Claim through Django's connection, from all queues unless told otherwise."""
    return store.claim(
        connection, limit, worker, lease=lease, **{"queues": None, "exclude_queues": (), "kinds": None} | options
    ).jobs


def held(**fields: Any) -> ClaimedJob:
    """A job of the given columns that has just been claimed, by w-1."""
    job = JobFactory(priority=100, **fields)
    [claimed] = claim(1)
    assert claimed.id == job.pk
    return claimed


def age(id: int, seconds: float, *names: str) -> None:
    """Move times of a row into the past, as if so many seconds had gone by."""
    moved = ", ".join(f"{name} = {name} - make_interval(secs => {seconds:f})" for name in names)
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE pgjobs_job SET {moved} WHERE id = %s", [id])  # noqa: S608


def lapse(id: int) -> None:
    """Let the lease of a reserved job run out."""
    age(id, 3600, "reserved_until")


def database_now() -> Any:
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp()")
        return cursor.fetchone()[0]


NO_LEASE = dict.fromkeys(LEASE_FIELDS)
"""What an ended reservation leaves in a row."""


def history(id: int) -> list[dict[str, Any]]:
    """The rows of history of a job, without what says where they are kept."""
    rows = Attempt.objects.filter(job_id=id).order_by("id").values()
    return [{name: value for name, value in row.items() if name not in ("id", "job_id")} for row in rows]
