"""claim says how long a worker that found nothing may sleep."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from pgjobs import store
from tests.factories import JobFactory, PauseFactory

pytestmark = pytest.mark.django_db


def next_due(**options: Any) -> float | None:
    """As a claim of a kind that there is not answers it."""
    claim = store.claim(
        connection, 10, "w-1", lease=15, **{"queues": None, "exclude_queues": (), "kinds": ["none"]} | options
    )
    assert not claim.jobs
    return claim.due


def later(seconds: float) -> dt.datetime:
    return timezone.now() + dt.timedelta(seconds=seconds)


def test_nothing_waits_for_its_time() -> None:
    assert next_due() is None
    JobFactory()
    JobFactory(reserved=True, run_after=later(60))
    JobFactory(dead=True, run_after=later(60))
    assert next_due() is None


def test_the_earliest_of_all_queues_and_priorities() -> None:
    """F48"""
    for seconds, priority, queue in [(300, 100, "a"), (100, -100, "a"), (200, 0, "b"), (50, 0, "c")]:
        JobFactory(run_after=later(seconds), priority=priority, queue=queue)
    JobFactory(queue="a", priority=100)
    near = {"abs": 10}
    assert next_due() == pytest.approx(50, **near)
    assert next_due(queues=["a"]) == pytest.approx(100, **near)
    assert next_due(queues=["b", "a", "none"]) == pytest.approx(100, **near)
    assert next_due(exclude_queues=["c"]) == pytest.approx(100, **near)
    assert next_due(queues=["b", "c"], exclude_queues=["c"]) == pytest.approx(200, **near)
    assert next_due(queues=[]) is None


def test_the_end_of_a_pause_counts_too() -> None:
    PauseFactory(until=None)
    PauseFactory(name="over", until=later(-60))
    assert next_due() is None
    PauseFactory(scope="kind", name="k", until=later(70))
    assert next_due() == pytest.approx(70, abs=10)
    JobFactory(run_after=later(40), queue="other")
    assert next_due() == pytest.approx(40, abs=10)


def test_a_claim_that_found_something_leaves_that_to_the_next() -> None:
    JobFactory(kind="k")
    JobFactory(kind="k", run_after=later(50))
    options: dict[str, Any] = {"queues": None, "exclude_queues": (), "kinds": ["k"]}
    first = store.claim(connection, 10, "w-1", lease=15, **options)
    assert (len(first.jobs), first.due) == (1, None)
    assert next_due(kinds=["k"]) == pytest.approx(50, abs=10)
