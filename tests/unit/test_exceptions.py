"""What handlers raise, and the tree of errors."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone

from pgjobs import Cancel, Fail, Retry, Snooze, exceptions


@pytest.mark.parametrize(("given", "seconds"), [(None, None), (5, 5.0), (0, 0.0), (dt.timedelta(minutes=1), 60.0)])
def test_retry(given: Any, seconds: float | None) -> None:
    error = Retry("because", after=given)
    assert (str(error), error.after) == ("because", seconds)


@pytest.mark.parametrize("given", [-1, float("nan"), float("inf"), 1e12, "5", True, dt.timedelta(-1)])
@pytest.mark.parametrize("make", [lambda v: Retry(after=v), lambda v: Snooze(v)])
def test_a_delay_has_to_be_one(given: Any, make: Any) -> None:
    with pytest.raises(ValueError, match=r"(Retry|Snooze)\((after|until)=…\) takes "):
        make(given)


@pytest.mark.parametrize(("given", "until"), [(5, 5.0), (0, 0.0), (dt.timedelta(hours=1), 3600.0)])
def test_snooze(given: Any, until: float) -> None:
    error = Snooze(given, "not yet")
    assert (str(error), error.until) == ("not yet", until)


def test_snooze_until_a_time() -> None:
    now = timezone.now()
    assert Snooze(now).until == now
    with pytest.raises(ValueError, match="needs an aware datetime"):
        Snooze(dt.datetime(2026, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("kind", [Retry, Fail, Cancel])
def test_each_says_something(kind: Any) -> None:
    assert str(kind())
    assert str(kind("reason")) == "reason"


def test_outcomes_are_no_errors_of_pgjobs() -> None:
    """`except PgjobsError` in a handler must not catch them."""
    for kind in (Retry, Snooze, Fail, Cancel):
        assert issubclass(kind, exceptions.Outcome)
        assert not issubclass(kind, exceptions.PgjobsError)


def test_the_tree_is_as_drawn() -> None:
    drawn = re.findall(r"[├└]── (\w+)", exceptions.__doc__ or "")
    real = {
        name
        for name, value in vars(exceptions).items()
        if isinstance(value, type) and value.__module__ == exceptions.__name__
    }
    assert set(drawn) | {"PgjobsError", "Outcome"} == real
    assert issubclass(exceptions.ConfigurationError, ImproperlyConfigured)
    assert issubclass(exceptions.EnqueueError, ValueError)
    assert issubclass(exceptions.PayloadTypeError, (ValueError, TypeError))
    assert issubclass(exceptions.PayloadTooLarge, ValueError)
