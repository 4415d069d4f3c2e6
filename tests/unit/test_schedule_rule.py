"""Which ticks are fired: pure arithmetic on times (F85 to F88)."""

from __future__ import annotations

import datetime as dt
import time
from typing import Any

import pytest

from pgjobs.schedules.rule import MOST, Decision, Rule, decide

MINUTE, HOUR, DAY = dt.timedelta(minutes=1), dt.timedelta(hours=1), dt.timedelta(days=1)


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)


def cron(expression: str) -> Rule:
    return Rule(expression, None, "UTC")


def every(**interval: float) -> Rule:
    return Rule("", dt.timedelta(**interval), "")


def decided(rule: Rule, due: str, now: str, misfire: str = "once", **options: Any) -> Decision:
    return decide(rule, **{"misfire": misfire, "max_lateness": None} | options, due=at(due), now=at(now))


# Misfire -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("misfire", "times", "missed"), [("once", 1, None), ("all", 1, None), ("skip", 0, "2026-12-01 03:00")]
)
def test_a_night_job_while_the_workers_were_stopped(misfire: str, times: int, missed: str | None) -> None:
    """F87: stopped at 02:59, started at 03:05."""
    found = decided(cron("0 3 * * *"), "2026-12-01 03:00", "2026-12-01 03:05", misfire)
    assert found.times == [at("2026-12-01 03:00")] * times
    assert found.missed == (at(missed) if missed else None)
    assert found.following == at("2026-12-02 03:00")


@pytest.mark.parametrize("rule", [cron("*/5 * * * *"), every(minutes=5)])
def test_two_hours_of_every_five_minutes(rule: Rule) -> None:
    """F87"""
    due, now = "2026-12-01 08:00", "2026-12-01 09:57:30"
    once = decided(rule, due, now)
    assert once == Decision([at("2026-12-01 09:55")], None, at("2026-12-01 10:00"))
    everything = decided(rule, due, now, "all")
    assert everything.times == [at(due) + n * 5 * MINUTE for n in range(24)]
    assert everything.missed is None
    assert decided(rule, due, now, "skip") == Decision([], at("2026-12-01 09:55"), at("2026-12-01 10:00"))


@pytest.mark.parametrize("misfire", ["once", "skip", "all"])
def test_a_tick_on_time_is_fired_whatever_the_policy(misfire: str) -> None:
    found = decided(cron("0 3 * * *"), "2026-12-01 03:00", "2026-12-01 03:00:00.010", misfire)
    assert found == Decision([at("2026-12-01 03:00")], None, at("2026-12-02 03:00"))


def test_skip_fires_the_last_one_when_that_is_fresh() -> None:
    found = decided(every(seconds=10), "2026-12-01 08:00:00", "2026-12-01 09:00:25", "skip")
    assert found == Decision([at("2026-12-01 09:00:20")], None, at("2026-12-01 09:00:30"))


@pytest.mark.parametrize("misfire", ["once", "skip", "all"])
def test_max_lateness_is_how_late_a_tick_is_fired_at_most(misfire: str) -> None:
    rule, now = cron("0 * * * *"), "2026-12-01 09:45"
    assert decided(rule, "2026-12-01 09:00", now, misfire, max_lateness=HOUR).times == [at("2026-12-01 09:00")]
    late = decided(rule, "2026-12-01 09:00", now, misfire, max_lateness=40 * MINUTE)
    assert late == Decision([], at("2026-12-01 09:00"), at("2026-12-01 10:00"))


def test_of_all_only_those_that_are_not_too_late() -> None:
    found = decided(cron("0 * * * *"), "2026-12-01 01:00", "2026-12-01 09:30", "all", max_lateness=2 * HOUR)
    assert found.times == [at("2026-12-01 08:00"), at("2026-12-01 09:00")]
    assert found.missed == at("2026-12-01 07:00")


@pytest.mark.parametrize("rule", [cron("* * * * *"), every(minutes=1), every(seconds=1)])
@pytest.mark.parametrize("misfire", ["once", "all", "skip"])
def test_a_month_of_missed_minutes(rule: Rule, misfire: str) -> None:
    """F88: the last ones are found without walking over all of them, and ``all`` has a cap."""
    began = time.monotonic()
    found = decided(rule, "2026-11-01 00:00", "2026-12-01 00:00:00.5", misfire)
    assert time.monotonic() - began < 1
    assert len(found.times) == (MOST if misfire == "all" else 1)
    assert found.times[-1] == at("2026-12-01 00:00")
    assert found.times == sorted(set(found.times))
    if misfire == "all":
        assert found.missed is not None
        assert found.missed < found.times[0]
        assert rule.next(found.missed) == found.times[0], "the last of those that are left out"
    assert found.following > at("2026-12-01 00:00:00.5")


def test_all_across_an_uneven_calendar_is_what_a_walk_would_find() -> None:
    rule = Rule("*/20 1-4 28-31 * *", None, "Europe/Berlin")
    due, now = rule.next(at("2026-01-01 00:00")), at("2026-12-01 12:00")
    walked = [due]
    while (following := rule.next(walked[-1])) <= now:
        walked.append(following)
    found = decide(rule, misfire="all", max_lateness=None, due=due, now=now)
    assert len(walked) > MOST
    assert found.times == walked[-MOST:]
    assert found.missed == walked[-MOST - 1]


def test_a_time_that_somebody_set_by_hand_counts() -> None:
    found = decided(cron("0 3 * * *"), "2026-12-01 08:11:12", "2026-12-01 08:11:13")
    assert found == Decision([at("2026-12-01 08:11:12")], None, at("2026-12-02 03:00"))


def test_what_follows_comes_after_the_last_tick_also_when_the_clock_went_back() -> None:
    """F86"""
    found = decided(every(minutes=1), "2026-12-01 08:00", "2026-12-01 08:00:10", last_tick_at=at("2026-12-01 08:30"))
    assert found.following == at("2026-12-01 08:31")


# Intervals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval", "after", "following"),
    [
        ({"seconds": 1}, "2026-12-01 08:00:00", "2026-12-01 08:00:01"),
        ({"seconds": 1}, "2026-12-01 08:00:00.999999", "2026-12-01 08:00:01"),
        ({"seconds": 1.5}, "1970-01-01 00:00:01", "1970-01-01 00:00:01.5"),
        ({"minutes": 5}, "2026-12-01 08:03", "2026-12-01 08:05"),
        ({"minutes": 5}, "2026-12-01 08:05", "2026-12-01 08:10"),
        ({"hours": 24}, "2026-12-01 08:05", "2026-12-02 00:00"),
        ({"days": 7}, "2026-12-01 08:05", "2026-12-03 00:00"),  # 1970-01-01 was a Thursday
        ({"minutes": 7}, "1969-12-31 23:59", "1970-01-01 00:00"),
    ],
)
def test_intervals_are_multiples_since_1970(interval: dict[str, float], after: str, following: str) -> None:
    assert every(**interval).next(at(after)) == at(following)


def test_intervals_end_with_the_calendar() -> None:
    with pytest.raises(ValueError, match="no time after"):
        every(days=36_500).next(at("9990-01-01 00:00"))


def test_the_last_of_an_interval() -> None:
    rule = every(minutes=5)
    assert rule.last(at("2026-12-01 08:00"), at("2026-12-01 08:04")) is None
    assert rule.last(at("2026-12-01 08:00"), at("2026-12-01 08:05")) == at("2026-12-01 08:05")
