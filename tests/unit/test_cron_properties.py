"""Random cron expressions, zones and bases: what holds for all of them, checked against a second, slow reading of the rule."""

from __future__ import annotations

import datetime as dt
import random
import zoneinfo
from functools import cache

import pytest

from pgjobs.schedules.cron import next_time

MINUTE = dt.timedelta(minutes=1)
JUMPS = {
    # Zones, and instants near which their clocks jump.
    "Europe/Berlin": ["2026-10-25T01:00Z", "2027-03-28T01:00Z"],
    "America/New_York": ["2026-11-01T06:00Z", "2027-03-14T07:00Z"],
    "Australia/Lord_Howe": ["2026-10-03T15:30Z", "2027-04-03T15:00Z"],
    "Africa/Casablanca": ["2026-02-15T02:00Z", "2026-03-22T02:00Z"],
    "Pacific/Chatham": ["2026-09-26T14:00Z", "2027-04-03T14:00Z"],
    "Antarctica/Troll": ["2026-10-25T01:00Z", "2027-03-28T01:00Z"],
    "America/Sao_Paulo": ["2018-11-04T03:00Z", "2019-02-17T02:00Z"],
    "America/Havana": ["2026-11-01T05:00Z", "2027-03-14T05:00Z"],
    "Pacific/Apia": ["2011-12-30T10:00Z", "2012-03-31T14:00Z"],
    "Pacific/Kwajalein": ["1993-08-21T12:00Z", "1969-09-30T13:00Z"],
    "Asia/Kathmandu": ["2026-01-01T00:00Z", "1985-12-31T18:30Z"],  # the latter by a quarter of an hour
    "UTC": ["2028-02-29T00:00Z"],
}
RANGES = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 7)]


def random_field(chance: random.Random, low: int, high: int, star: float) -> str:
    if chance.random() < star:
        return chance.choice(["*", "*", f"*/{chance.randint(1, high)}"])
    a, b = sorted(chance.choices(range(low, high + 1), k=2))
    return chance.choice(
        [str(a), f"{a},{b}", f"{a}-{b}", f"{a}-{b}/{chance.randint(1, high)}", f"{a}/{chance.randint(1, high)}"]
    )


def random_expression(chance: random.Random, stars: tuple[float, float, float, float, float]) -> str:
    return " ".join(random_field(chance, *limits, star) for limits, star in zip(RANGES, stars, strict=True))


def random_base(chance: random.Random) -> tuple[str, str, dt.datetime]:
    """A zone, the instant of a jump of its clocks, and a base within 28 hours of it."""
    zone = chance.choice(list(JUMPS))
    jump = chance.choice(JUMPS[zone])
    distance = dt.timedelta(seconds=chance.randint(-100_000, 100_000), microseconds=chance.choice([0, 1, 999_999]))
    return zone, jump, dt.datetime.fromisoformat(jump) + distance


class Fields:
    """An expression as sets of numbers: a reading of our own, to compare with."""

    def __init__(self, expression: str) -> None:
        self.texts = expression.split()
        self.sets = [self.numbers(text, *limits) for text, limits in zip(self.texts, RANGES, strict=True)]
        self.sets[4] = {day % 7 for day in self.sets[4]}

    @staticmethod
    def numbers(text: str, low: int, high: int) -> set[int]:
        found: set[int] = set()
        for term in text.split(","):
            span, _, step = term.partition("/")
            first, _, last = span.replace("*", f"{low}-{high}").partition("-")
            end = int(last) if last else high if step else int(first)
            found |= set(range(int(first), end + 1, int(step or 1)))
        return found

    def match(self, wall: dt.datetime) -> bool:
        minute, hour, day, month, weekday = self.sets
        days = [wall.day in day, wall.isoweekday() % 7 in weekday]
        either = not any(text.startswith("*") for text in (self.texts[2], self.texts[4]))
        right_day = any(days) if either else all(days)
        return wall.minute in minute and wall.hour in hour and wall.month in month and right_day

    @property
    def fixed(self) -> bool:
        return not any(text.startswith("*") for text in self.texts[:2])


@cache
def minutes(zone: str, jump: str) -> list[tuple[dt.datetime, dt.datetime, list[dt.datetime], bool]]:
    """Each minute around a jump: the instant, what clocks show, which readings they jumped over, and whether they
    showed it before."""
    rules, first = zoneinfo.ZoneInfo(zone), dt.datetime.fromisoformat(jump) - dt.timedelta(hours=54)
    rows: list[tuple[dt.datetime, dt.datetime, list[dt.datetime], bool]] = []
    shown: set[dt.datetime] = set()
    for n in range(114 * 60):
        wall = (first + n * MINUTE).astimezone(rules).replace(tzinfo=None)
        last = rows[-1][1] if rows else wall
        jumped = [last + k * MINUTE for k in range(1, (wall - last) // MINUTE)]
        rows.append((first + n * MINUTE, wall, jumped, wall in shown))
        shown.add(wall)
    return rows


def slowly(expression: str, zone: str, jump: str, after: dt.datetime) -> dt.datetime | None:
    """The next time, found by looking at each minute until 60 hours after the jump; None if it is later."""
    fields = Fields(expression)
    for instant, wall, jumped, repeated in minutes(zone, jump):
        if instant > after and (
            (fields.match(wall) and not (fields.fixed and repeated))
            or (fields.fixed and any(map(fields.match, jumped)))
        ):
            return instant
    return None


@pytest.mark.parametrize("seed", range(20))
def test_two_thousand_random_ones(seed: int) -> None:
    """F90: strictly later, idempotent, and its reading matches the fields, unless it is the end of a jump."""
    chance = random.Random(seed)
    for _ in range(100):
        expression = random_expression(chance, (0.3, 0.4, 0.6, 0.7, 0.6))
        zone, _, after = random_base(chance)
        said = f"{expression!r} in {zone} after {after}"
        try:
            found = next_time(expression, zone, after)
        except ValueError as refused:
            impossible = "can never match" in str(refused) or "longer than the field" in str(refused)
            assert impossible, said
            continue
        assert found > after, said
        for earlier in (found - dt.timedelta(microseconds=1), after + (found - after) * chance.random()):
            if earlier < found:
                assert next_time(expression, zone, earlier) == found, said
        rules = zoneinfo.ZoneInfo(zone)
        wall, before = ((found - delta).astimezone(rules) for delta in (0 * MINUTE, MINUTE))
        jumped = wall.utcoffset() > before.utcoffset()  # type: ignore[operator]
        assert Fields(expression).match(wall.replace(tzinfo=None)) or (Fields(expression).fixed and jumped), said


@pytest.mark.parametrize("seed", range(6))
def test_as_looking_at_each_minute_finds(seed: int) -> None:
    """F89, F90: dense expressions near jumps, each compared with the slow reading."""
    chance = random.Random(seed)
    for _ in range(50):
        expression = random_expression(chance, (0.4, 0.4, 0.9, 1.0, 0.9))
        zone, jump, after = random_base(chance)
        try:
            found = next_time(expression, zone, after)
        except ValueError:
            continue
        said = f"{expression!r} in {zone} after {after}"
        expected = slowly(expression, zone, jump, after)
        if expected is None:
            assert found > minutes(zone, jump)[-1][0], said
        else:
            assert found == expected, said
