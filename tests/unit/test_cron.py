"""Cron expressions: what is refused, and when the others fire."""

from __future__ import annotations

import datetime as dt
import random
import time
import zoneinfo

import pytest
from croniter import croniter

from pgjobs.schedules import next_times
from pgjobs.schedules.cron import check, in_words, last_time, next_time

from .cron_folds import FOLDS

EXPRESSIONS = [
    "* * * * *",
    "*/5 * * * *",
    "*/7 * * * *",
    "7,22,37 * * * *",
    "0 * * * *",
    "0 */6 * * *",
    "30 8 * * 1-5",
    "15 14 1 * *",
    "0 22 * * 1-5",
    "5 4 * * SUN",
    "0 9 * * 7",
    "0 9 1 * 1",
    "0 0 31 2 1-5",
    "0 0 29 2 *",
    "0 12 */3 * *",
    "0 0 1,15 * 3",
    "10-40/10 9-17 * jan-jun,DEC mon-fri",
    "23 0-20/2 * * *",
    "0 0 31 * *",
    "@hourly",
    "@daily",
    "@weekly",
    "@monthly",
    "@yearly",
]
ELSEWHERE = [
    # Far from a change of the zone's offset, all of them.
    ("UTC", "2026-01-01T00:00Z"),
    ("Asia/Kathmandu", "2026-02-28T23:59:30Z"),
    ("Asia/Tokyo", "2027-12-31T15:00Z"),
    ("Africa/Lagos", "2028-02-28T12:34:56Z"),
]


def at(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


@pytest.mark.parametrize(("expression", "zone", "after", "expected"), FOLDS)
def test_where_clocks_jump(expression: str, zone: str, after: str, expected: list[str]) -> None:
    """F89, F90: each time as worked out by hand from the zone's rules."""
    found = next_times(expression, zone, at(after), len(expected))
    assert [t.astimezone(zoneinfo.ZoneInfo(zone)).isoformat(timespec="minutes") for t in found] == expected
    assert all(t.tzinfo is dt.UTC for t in found)


@pytest.mark.parametrize(("zone", "after"), ELSEWHERE)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_another_library_says_the_same(expression: str, zone: str, after: str) -> None:
    """96 rows away from folds: croniter is the independent source."""
    other = croniter(expression, at(after).astimezone(zoneinfo.ZoneInfo(zone)))
    assert next_times(expression, zone, at(after), 6) == [other.get_next(dt.datetime) for _ in range(6)]


@pytest.mark.parametrize(
    "same", [("0 9 * * 7", "0 9 * * 0", "0 9 * * SUN", "0 9 * * sun"), ("*/60 * * * *", "@hourly")]
)
def test_dialect(same: tuple[str, ...]) -> None:
    """F99: 0, 7 and SUN are Sunday."""
    times = [next_times(expression, "UTC", at("2026-12-01T00:00Z"), 8) for expression in same]
    assert all(t == times[0] for t in times)


def test_the_two_day_fields_are_a_union_unless_one_is_a_star() -> None:
    """F99: 1 December 2026 is a Tuesday."""
    found = next_times("0 9 1 * 1", "UTC", at("2026-11-29T00:00Z"), 4)
    assert [t.day for t in found] == [30, 1, 7, 14]
    assert next_time("0 9 */2 * 1", "UTC", at("2026-12-01T00:00Z")).day == 7  # an odd Monday


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("", "0 fields; five are needed"),
        ("* * * *", "4 fields"),
        ("* * * * * *", "6 fields.*Seconds do not exist here.*interval"),
        ("*/0 * * * *", "minute '\\*/0'"),
        ("61 * * * *", "minute '61': cannot be read; write 0-59"),
        ("0 24 * * *", "hour '24'"),
        ("0 0 0 * *", "day of month '0'"),
        ("0 0 1 13 *", "month '13'"),
        ("0 0 * * 8", "day of week '8'"),
        ("5-1 * * * *", "minute '5-1'.*low to high"),
        ("0 0 * * FRI-SUN", "ends with 7, as in 5-7"),
        ("a * * * *", "minute 'A'"),
        ("1,,2 * * * *", "minute"),
        ("-1 * * * *", "minute"),
        ("1-5/2/2 * * * *", "minute"),
        ("٣ * * * *", "minute"),
        ("0 0 L * *", "'L' is not supported"),
        ("0 0 15W * *", "'W' is not supported"),
        ("0 0 * * 5#2", "'#' is not supported"),
        ("0 0 ? * *", "'\\?' is not supported"),
        ("*/90 * * * *", "a step of 90 is longer than the field"),
        ("@reboot", "@reboot is not known.*no start to run at"),
        ("@every 5m", "not known; use one of @yearly"),
        ("0 0 30 2 *", "can never match: no such month has a day 30"),
        ("0 0 31 4,6,9,11 *", "can never match"),
        ("0 0 31 2 */2", "can never match"),
        ("* " * 200, "at most 255 characters"),
    ],
)
def test_refused_with_a_sentence(expression: str, says: str) -> None:
    """F99: what cannot be read, or can never match, is refused when it is saved."""
    with pytest.raises(ValueError, match=says) as refused:
        check(expression, "UTC")
    assert str(refused.value).startswith("cron ")
    with pytest.raises(ValueError, match=says):
        next_times(expression, "UTC", at("2026-01-01T00:00Z"), 0)
    with pytest.raises(ValueError, match=says):
        in_words(expression)


@pytest.mark.parametrize("expression", ["0 0 31 2 1-5", "0 0 29 2 *", "0 0 29 2 */3", "@Daily", "  0  9 * * 1 "])
def test_rare_ones_are_accepted(expression: str) -> None:
    """F99: 31 February, or Monday to Friday of February; a leap day that is a Sunday, Wednesday or Saturday."""
    check(expression, "UTC")


@pytest.mark.parametrize(
    ("zone", "says"),
    [
        ("Europe/Kyyiv", "Did you mean 'Europe/Kyiv'"),
        ("utc", "Did you mean 'UTC'"),
        ("europe/berlin", "Did you mean 'Europe/Berlin'"),
        ("Europe", "not known"),
        ("", "not known"),
        ("../../etc/passwd", "not known"),
        ("CEST", "IANA name"),
        ("x" * 5000, "not known"),
        ("a\0b", "not known"),
    ],
)
def test_zones_that_do_not_exist(zone: str, says: str) -> None:
    if zone == "utc" and "utc" in zoneinfo.available_timezones():
        pytest.skip("file names of this system do not tell capital letters apart")
    with pytest.raises(ValueError, match=says):
        check("@daily", zone)


def test_arguments_of_next_times() -> None:
    with pytest.raises(ValueError, match="aware datetime"):
        next_times("@daily", "UTC", dt.datetime(2026, 1, 1), 1)  # noqa: DTZ001 - that is the point
    for n in (-1, 10_001, True, 1.0):
        with pytest.raises(ValueError, match="n has to be a whole number"):
            next_times("@daily", "UTC", at("2026-01-01T00:00Z"), n)  # type: ignore[arg-type]
    assert next_times("@daily", "UTC", at("2026-01-01T00:00Z"), 0) == []
    assert next_times("@daily", "UTC", at("2026-01-01T09:00+09:00"), 1) == [at("2026-01-02T00:00Z")]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("2026-01-01T00:00:00Z", "2026-01-01T00:05Z"),
        ("2026-01-01T00:04:59.999999Z", "2026-01-01T00:05Z"),
        ("2026-01-01T00:05:00.000001Z", "2026-01-01T00:10Z"),
    ],
)
def test_strictly_later_to_the_microsecond(after: str, expected: str) -> None:
    for expression in ("*/5 * * * *", "0,5,10 0-23 * * *"):
        assert next_time(expression, "UTC", at(after)) == at(expected)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("expression", ["0 0 1 * *", "*/5 * * * *"])
def test_the_ends_of_the_calendar(expression: str, zone: str) -> None:
    """A search ends there with a sentence, not with another error or not at all."""
    with pytest.raises(ValueError, match="no time after"):
        next_time(expression, zone, at("9999-12-31T23:58Z"))
    assert next_time(expression, zone, at("0001-01-03T00:00Z")) > at("0001-01-03T00:00Z")


def test_a_search_is_bounded() -> None:
    """The rarest expressions: every minute of a leap day that is a Sunday, across 2100, which has none."""
    began = time.process_time()
    check("* * 29 2 *", "Europe/Berlin")
    found = next_time("* * 29 2 */7", "Europe/Berlin", at("2096-03-01T00:00Z"))
    assert found.astimezone(zoneinfo.ZoneInfo("Europe/Berlin")).date() == dt.date(2128, 2, 29)
    assert time.process_time() - began < 1


def test_the_last_of_many() -> None:
    """F88: the latest missed time, without going through all of them."""
    after, until = at("2020-01-01T00:00Z"), at("2026-06-01T10:00:30Z")
    began = time.process_time()
    assert last_time("* * * * *", "Europe/Berlin", after, until) == at("2026-06-01T10:00Z")
    assert time.process_time() - began < 1
    assert last_time("0 3 * * *", "UTC", at("2026-06-01T03:00Z"), at("2026-06-02T02:59:59Z")) is None
    assert last_time("0 3 * * *", "UTC", at("2026-06-01T03:00Z"), at("2026-06-02T03:00Z")) == at("2026-06-02T03:00Z")


@pytest.mark.parametrize("seed", range(20))
def test_the_last_is_what_going_through_all_finds(seed: int) -> None:
    chance = random.Random(seed)
    zone = chance.choice(["Europe/Berlin", "Australia/Lord_Howe"])
    expression = chance.choice(["*/30 * * * *", "30 2 * * *", "15 1-3 * * *", "0 */5 * * *"])
    after = at(chance.choice(["2026-10-02T00:00Z", "2026-10-23T00:00Z", "2027-03-26T00:00Z", "2027-04-02T00:00Z"]))
    until = after + dt.timedelta(minutes=chance.randrange(1, 4000))
    expected, following = None, next_time(expression, zone, after)
    while following <= until:
        expected, following = following, next_time(expression, zone, following)
    assert last_time(expression, zone, after, until) == expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every fifth minute of every hour"),
        ("0 2 * * *", "At 02:00 every day"),
        ("30 8 * * 1-5", "At 08:30 on Monday through Friday"),
        ("0 9 1 * 1", "At 09:00 on the first day of month and on Monday"),
        ("@hourly", "At the start of every hour"),
        ("@monthly", "At 00:00 on the first day of every month"),
    ],
)
def test_in_words(expression: str, words: str) -> None:
    assert in_words(expression) == words
