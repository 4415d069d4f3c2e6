"""next_run_after: now + least(5 s · 2^attempt, 6 h) + 0…1 s."""

from __future__ import annotations

import statistics

import pytest
from django.db import connection

from pgjobs import Exponential

pytestmark = pytest.mark.django_db


def waits(attempt: object, rows: int = 1) -> list[float]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT extract(epoch FROM pgjobs_next_run_after(%s) - statement_timestamp())::float8"
            " FROM generate_series(1, %s)",
            [attempt, rows],
        )
        return [wait for (wait,) in cursor.fetchall()]


@pytest.mark.parametrize("attempt", [0, 1, 2, 3, 11, 12, 13, 20, 21, 64, 1000, 2**31 - 1, -1, -(2**31)])
def test_the_formula_is_that_of_the_default_backoff(attempt: int) -> None:
    expected = Exponential().without_jitter(attempt)
    assert expected <= waits(attempt)[0] <= expected + 1.5


def test_without_a_number_it_is_the_shortest() -> None:
    assert 5 <= waits(None)[0] <= 6.5


@pytest.mark.parametrize("attempt", [1, 40])
def test_each_row_of_a_batch_waits_another_while(attempt: int) -> None:
    """F106"""
    found = waits(attempt, 1000)
    least = Exponential().without_jitter(attempt)
    assert least <= min(found)
    assert max(found) <= least + 1.5
    assert 0.2 < statistics.stdev(found) < 0.4
