"""Schedules under real processes: many at once, killed at random, with clocks that are wrong, beside retention."""

from __future__ import annotations

import datetime as dt
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from django.db import connection

from pgjobs.models import Job, Schedule, Tick
from tests.process.conftest import Start
from tests.rows import database_now
from tests.ticking import MINUTE, SECOND, fresh, schedule
from tests.waiting import wait_until
from tests.worker_harness import Process

FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
needs_faketime = pytest.mark.skipif(not FAKETIME.exists(), reason=f"{FAKETIME} is not there: apt-get install faketime")

CALM = {"PGJOBS_LEASE": "15", "PGJOBS_HEARTBEAT": "5"}


def each_once(one: Schedule, step: dt.timedelta, *, gaps: bool = False) -> list[dt.datetime]:
    """The nominal times of the jobs, after checking that each is one tick and one job, in the grid of the rule."""
    times = list(
        Tick.objects.filter(schedule_id=one.pk).order_by("scheduled_for").values_list("scheduled_for", flat=True)
    )
    # Not those that came since the ticks were read.
    jobs = Job.objects.filter(schedule_id=one.pk, scheduled_for__lte=times[-1])
    of_jobs = Counter(jobs.values_list("scheduled_for", flat=True))
    assert of_jobs == Counter(times)
    assert max(of_jobs.values()) == 1
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    assert all((time - epoch) % step == dt.timedelta(0) for time in times)
    if not gaps:
        expected = [times[0] + n * step for n in range(len(times))]
        assert times == expected
    return times


def lateness(one: Schedule) -> list[float]:
    """Seconds from the nominal time of each tick to its row, by the database's clock, sorted."""
    found = Tick.objects.filter(schedule_id=one.pk)
    return sorted((tick.created_at - tick.scheduled_for).total_seconds() for tick in found)


def shown(late: list[float]) -> str:
    return (
        f"lateness of {len(late)} ticks: median {late[len(late) // 2]:.3f} s, "
        f"p99 {late[min(len(late) * 99 // 100, len(late) - 1)]:.3f} s, most {late[-1]:.3f} s"
    )


def planned(one: Schedule) -> dt.datetime:
    return wait_until(lambda: fresh(one.pk).next_run_at, "the first time", seconds=60)


def pass_until(at: dt.datetime, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Until the database's clock says so; the wait is what is tested here."""

    def passed() -> bool:
        meanwhile()
        return database_now() >= at

    wait_until(passed, f"{at}", seconds=600)


def test_four_processes_over_eight_seconds(run_jobs: Start) -> None:
    """F85"""
    one = schedule(every=SECOND)
    for _ in range(2):
        run_jobs("--processes", 2, "--threads", 1, **CALM)
    pass_until(planned(one) + 8 * SECOND)
    assert len(each_once(one, SECOND)) >= 8
    print(shown(lateness(one)))


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.timeout(600)
def test_ten_processes_over_three_minutes_of_every_minute(run_jobs: Start) -> None:
    """F85: one job a minute."""
    one = schedule(cron="* * * * *")
    for _ in range(2):
        run_jobs("--processes", 5, "--threads", 1, **CALM)
    first = planned(one)
    pass_until(first + 2 * MINUTE + 5 * SECOND)
    times = each_once(one, MINUTE)
    assert times == [first, first + MINUTE, first + 2 * MINUTE]
    late = lateness(one)
    print(shown(late))
    assert late[-1] < 2


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.timeout(600)
def test_ten_processes_killed_and_started_at_random(run_jobs: Start) -> None:
    """F85, F87: still one job a minute, and beside it one each second at most."""
    rng = random.Random(85)
    minutely, often = schedule(cron="* * * * *"), schedule(every=SECOND)
    some: list[Process] = [run_jobs("--processes", 2, "--threads", 1, **CALM) for _ in range(5)]
    first = planned(minutely)
    kills = 0

    def trouble() -> None:
        nonlocal kills
        if rng.random() < 0.03:
            victim = rng.randrange(len(some))
            some[victim].kill_group()
            some[victim] = run_jobs("--processes", 2, "--threads", 1, **CALM)
            kills += 1

    pass_until(first + 2 * MINUTE + 10 * SECOND, trouble)
    times = each_once(minutely, MINUTE)
    assert times == [first, first + MINUTE, first + 2 * MINUTE]
    seconds = each_once(often, SECOND, gaps=True)
    assert kills >= 5
    print(f"{kills} kills; {len(seconds)} ticks of one second; of the minutes: {shown(lateness(minutely))}")


# Clocks that are wrong ------------------------------------------------------------------------------------------------


PRELUDE = """
import threading, time
time.sleep = lambda seconds: threading.Event().wait(seconds) and None
print('clock', time.time(), flush=True)
"""
"""libfaketime 0.9.10 refuses the call behind time.sleep when it leaves the monotonic clock alone; it does not touch waits for
locks."""


def is_off_by(one: Process, seconds: float) -> None:
    """The process sees another time than we do, or the test would show nothing."""
    seen = float(one.wait_for(r"clock ([0-9.]+)")[1])
    assert abs(seen - time.time() - seconds) < 15


def faked(offset: str, **more: str) -> dict[str, str]:
    """The environment of a process whose clock is wrong. What measures durations stays right, as on a real machine."""
    return CALM | {"LD_PRELOAD": str(FAKETIME), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"} | more


@needs_faketime
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_clocks_minutes_apart_fire_neither_early_nor_twice(run_jobs: Start) -> None:
    """F86: two minutes fast, two minutes slow, and right: the database's clock decides."""
    one, minutely = schedule(every=2 * SECOND), schedule(cron="* * * * *")
    for offset in (120, -120, 0):
        is_off_by(run_jobs("--threads", 1, prelude=PRELUDE, **faked(f"{offset:+}s")), offset)
    first = planned(minutely)
    pass_until(max(first + 5 * SECOND, planned(one) + 20 * SECOND))
    workers = set(Job.objects.values_list("worker", flat=True)) - {None}
    assert len(each_once(one, 2 * SECOND)) >= 10
    assert each_once(minutely, MINUTE)[0] == first
    assert lateness(one)[0] >= 0, "none before its time"
    assert lateness(minutely)[0] >= 0
    assert workers
    print(shown(lateness(one)))


@needs_faketime
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("only_slow", [False, True], ids=["beside a right one", "alone"])
def test_a_clock_that_is_stepped_back_fires_nothing_again(run_jobs: Start, tmp_path: Path, only_slow: bool) -> None:
    """F86: by three minutes, while it works; and a process that starts behind."""
    clock = tmp_path / "clock"
    clock.write_text("+60s")
    stepping = {"FAKETIME_TIMESTAMP_FILE": str(clock), "FAKETIME_NO_CACHE": "1"}
    environment = faked("+60s", **stepping)
    del environment["FAKETIME"]
    one = schedule(every=SECOND)
    is_off_by(run_jobs("--threads", 1, prelude=PRELUDE, **environment), 60)
    if not only_slow:
        run_jobs("--threads", 1, **CALM)
    pass_until(planned(one) + 5 * SECOND)
    clock.write_text("-120s")
    before = Tick.objects.count()
    pass_until(database_now() + 6 * SECOND)
    is_off_by(run_jobs("--threads", 1, prelude=PRELUDE, **faked("-180s")), -180)
    pass_until(database_now() + 5 * SECOND)
    assert Tick.objects.count() >= before + 8, "it goes on"
    each_once(one, SECOND)
    assert lateness(one)[0] >= 0


# Beside other work ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.timeout(900)
def test_ticks_stay_on_time_during_a_pass_of_retention(run_jobs: Start) -> None:
    """F102: PGJOBS_TEST_RETENTION_ROWS=5000000 for the full size; a fifth of a million here."""
    rows = int(os.environ.get("PGJOBS_TEST_RETENTION_ROWS", "200000"))
    with connection.cursor() as cursor:
        for first in range(0, rows, 500_000):
            cursor.execute(
                "INSERT INTO pgjobs_job (kind, payload, status, attempts, finished_at, created_at)"
                " SELECT 'write_note', '{\"text\": \"x\"}', 'done', 1, now() - interval '30 days' + n * interval '1 ms',"
                " now() - interval '31 days' FROM generate_series(%s, %s) n",
                [first + 1, min(first + 500_000, rows)],
            )
        cursor.execute("ANALYZE pgjobs_job")
    oldest = Job.objects.filter(status="done").order_by("finished_at").values_list("pk", flat=True)[0]
    some = [schedule(every=SECOND), schedule(every=1.5 * SECOND), schedule(cron="* * * * *")]
    for _ in range(2):
        run_jobs("--processes", 1, "--threads", 2, **CALM)
    planned(some[0])
    wait_until(lambda: not Job.objects.filter(pk=oldest).exists(), "the pass to begin", seconds=60)
    began = database_now()
    old = Job.objects.filter(status="done", finished_at__lt=began - 86_400 * SECOND).order_by("finished_at")
    while old.exists() and database_now() < began + 240 * SECOND:
        pass_until(database_now() + 2 * SECOND)
    pass_until(began + 20 * SECOND)
    late = sorted(seconds for one in some for seconds in lateness(one))
    for one, step in zip(some, (SECOND, 1.5 * SECOND, MINUTE), strict=True):
        if Tick.objects.filter(schedule_id=one.pk).exists():
            each_once(one, step, gaps=True)
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pgjobs_job WHERE finished_at < %s", [began - 86_400 * SECOND])
        [left] = cursor.fetchone()
    print(f"{rows} rows, {rows - left} of them removed; {shown(late)}")
    assert late[min(len(late) * 99 // 100, len(late) - 1)] < 2
