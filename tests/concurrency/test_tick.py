"""One tick, many workers: real connections and threads."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from pgjobs.conf import get_settings
from pgjobs.models import Job, Schedule, Tick
from pgjobs.schedules.firing import Firing
from pgjobs.schedules.payloads import Payloads
from pgjobs.schedules.sync import Declarations
from pgjobs.worker.connection import close, dedicated, ready
from tests.rows import database_now
from tests.ticking import MINUTE, due, fresh, overdue, schedule, tick, ticks

pytestmark = pytest.mark.django_db(transaction=True)


TICK = (
    "SELECT outcome FROM pgjobs_tick(%s, %s, %s, ARRAY[%s::timestamptz], NULL, %s, '', 'write_note', '{}', 0, 3, NULL,"
    " 'default', NULL)"
)


def together(count: int, what: Any) -> list[Any]:
    """So many threads, each with its own connection, begin at the same moment."""
    gate = threading.Barrier(count)

    def run() -> Any:
        own = dedicated("default", "tests")
        try:
            ready(own)
            gate.wait(20)
            return what(own)
        finally:
            close(own)

    with ThreadPoolExecutor(count) as pool:
        futures = [pool.submit(run) for _ in range(count)]
        return [future.result(60) for future in futures]


def looks(own: Any) -> int:
    firing = Firing(get_settings(), Payloads(lambda: None), lambda _: None)
    return sum(firing.step(own) for _ in range(3))


@pytest.mark.parametrize("misfire", ["once", "all"])
def test_ten_workers_fire_one_tick(misfire: str) -> None:
    """F85: what each of the losers changed is nothing."""
    some = [schedule(misfire=misfire, overlap=overlap) for overlap in ("allow", "skip", "queue_one")]
    for round_ in range(5):
        nominal = [overdue(one, (20 - round_) * MINUTE) for one in some]
        before = Job.objects.count()
        moved = together(10, looks)
        assert sum(moved) == 3, moved
        for one, at in zip(some, nominal, strict=True):
            assert fresh(one.pk).next_run_at > database_now()
            assert ticks(one)[-1][0] >= at
        assert Job.objects.count() - before <= (3 if misfire == "once" else 3 * 21)
        for one in some:
            Tick.objects.filter(schedule_id=one.pk).delete()
            Schedule.objects.filter(pk=one.pk).update(last_tick_at=None)
    pairs = Counter(Job.objects.filter(schedule_id=some[1].pk).values_list("status", flat=True))
    assert pairs["pending"] == 1


def test_ten_workers_give_a_new_schedule_one_time() -> None:
    one = schedule(cron="*/7 * * * *", timezone="")
    assert sum(together(10, looks)) == 1
    assert fresh(one.pk).next_run_at is not None


def test_ten_workers_count_one_error() -> None:
    """F101"""
    one = schedule(cron="garbage")
    together(10, looks)
    assert fresh(one.pk).errors == 1


def test_ten_workers_start_with_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    row = {
        "kind": "write_note", "queue": None, "payload": {}, "payload_from": "", "cron": "", "every": 60,
        "timezone": None, "misfire": "once", "overlap": "allow", "max_lateness": None,
    }  # fmt: skip
    monkeypatch.setattr("pgjobs.schedules.sync.declared", lambda: [{"name": f"n{n}", **row} for n in (3, 1, 2)])
    assert all(together(10, lambda own: Declarations(get_settings()).step(own)))
    assert sorted(Schedule.objects.values_list("name", "revision")) == [("n1", 0), ("n2", 0), ("n3", 0)]


def test_a_tick_beside_an_edit_is_of_one_of_the_two(a: Any, b: Any) -> None:
    """An edit that has not committed holds the row: the tick passes it over, and afterwards it is another schedule."""
    one = schedule()
    nominal = overdue(one)
    row = due(one)
    a.begin()
    a.run("UPDATE pgjobs_schedule SET every = '1 hour' WHERE id = %s", one.pk)
    assert tick(row, nominal) == []
    a.commit()
    assert tick(row, nominal) == []
    assert not Job.objects.exists()


def test_a_delete_beside_a_tick_leaves_no_tick(a: Any, b: Any) -> None:
    one = schedule()
    nominal = overdue(one).astimezone(dt.UTC)
    row = due(one)
    a.begin()
    assert a.run(TICK, row.id, row.revision, nominal, nominal, row.read_at + MINUTE) == [("enqueued",)]
    waiting = b.blocks("DELETE FROM pgjobs_schedule WHERE id = %s", one.pk)
    a.commit()
    waiting.result(30)
    assert not Tick.objects.exists()
    assert Job.objects.count() == 1


def test_a_tick_that_is_rolled_back_leaves_its_time_to_the_next_worker(a: Any) -> None:
    """F85: the tick and its job are one transaction."""
    one = schedule()
    nominal = overdue(one)
    row = due(one)
    a.begin()
    a.run(TICK, row.id, row.revision, nominal, nominal, row.read_at + MINUTE)
    assert tick(row, nominal) == [], "it is being fired"
    a.rollback()
    assert len(tick(row, nominal)) == 1
    assert Job.objects.count() == 1
    connection.close()
