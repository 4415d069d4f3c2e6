"""What ticks cost when there are many: by the index, whatever the planner believes of the table (F102)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from django.db import connection

from pgjobs import store
from pgjobs.conf import get_settings
from pgjobs.models import Schedule, Tick
from pgjobs.retention import prune_slice
from tests.factories import JobFactory
from tests.rows import database_now
from tests.ticking import MINUTE, due, overdue, schedule, tick

pytestmark = pytest.mark.django_db(transaction=True)


def sql(statement: str, *params: object) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(params=["analysed", "believed to be empty"])
def many(request: pytest.FixtureRequest) -> Iterator[Schedule]:
    """Two schedules with a hundred thousand old ticks each, whose jobs are gone."""
    one, other = schedule(), schedule()
    sql("ALTER TABLE pgjobs_tick SET (autovacuum_enabled = false)")
    sql("VACUUM ANALYZE pgjobs_tick")
    sql(
        "INSERT INTO pgjobs_tick (schedule_id, scheduled_for, job_id, created_at)"
        " SELECT s, now() - interval '30 days' + n * interval '1 second', 1000000000 + n, now() - interval '30 days'"
        " FROM generate_series(1, 100000) n, unnest(%s::bigint[]) s",
        [one.pk, other.pk],
    )
    if request.param == "analysed":
        sql("VACUUM ANALYZE pgjobs_tick")
    yield one
    sql("TRUNCATE pgjobs_tick")
    sql("ALTER TABLE pgjobs_tick RESET (autovacuum_enabled)")


def buffers(statement: str, *params: object) -> int:
    [(found,)] = sql(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", *params)
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]  # type: ignore[index]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def test_a_slice_of_retention_reads_a_slice(many: Schedule) -> None:
    assert buffers("SELECT pgjobs_prune_ticks('7 days', 100)") < 4000
    assert Tick.objects.count() == 200_000 - 200


def test_ticks_whose_jobs_are_kept_are_not_all_looked_at(many: Schedule) -> None:
    """F102: millions where jobs are kept for months. A call is in the way of the heartbeat, whose leases last seconds."""
    sql("UPDATE pgjobs_tick SET job_id = %s", JobFactory().pk)
    assert buffers("SELECT pgjobs_prune_ticks('7 days', 100)") < 20_000
    assert Tick.objects.count() == 200_000


def test_behind_ticks_whose_jobs_are_kept_others_go(many: Schedule) -> None:
    sql("UPDATE pgjobs_tick SET job_id = %s WHERE job_id < 1000050000", JobFactory().pk)
    assert any(store.prune_ticks(connection, 7 * 86_400, batch=100) for _ in range(60))


def test_a_tick_reads_its_own(many: Schedule) -> None:
    nominal = overdue(many)
    row = due(many)
    call = (
        "SELECT * FROM pgjobs_tick(%s, %s, %s, ARRAY[%s::timestamptz], NULL, %s, '', 'write_note', '{}', 0, 3, NULL,"
        " 'default', NULL)"
    )
    tick(row, nominal)  # once, so that catalogs are read
    nominal = overdue(many, at=database_now())
    row = due(many)
    assert buffers(call, row.id, row.revision, nominal, nominal, row.read_at + MINUTE) < 500
    assert store.due_ticks(connection, limit=5) is not None


def test_the_pass_of_retention_takes_ticks_along() -> None:
    """F86"""
    one = schedule()
    old = database_now() - 8 * 1440 * MINUTE
    kept = JobFactory(done=True)
    Tick.objects.create(schedule_id=one.pk, scheduled_for=old, created_at=old, job_id=None)
    Tick.objects.create(schedule_id=one.pk, scheduled_for=old + MINUTE, created_at=old, job_id=kept.pk)
    assert not prune_slice(connection, get_settings())
    assert list(Tick.objects.values_list("job_id", flat=True)) == [kept.pk]
