"""heartbeat: the lease of what a worker holds is extended."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import connection

from pgjobs import store
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import changes, claim, columns, database_now, held, lapse

pytestmark = pytest.mark.django_db


def heartbeat(jobs: list[store.ClaimedJob], seconds: float = 15, flip: int = -1) -> list[tuple[int, str]]:
    leases = [job.lease ^ (n == flip) for n, job in enumerate(jobs)]
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, verdict FROM pgjobs_heartbeat(%s::bigint[], %s::bigint[], make_interval(secs => %s))",
            [[job.id for job in jobs], leases, seconds],
        )
        return cursor.fetchall()


def test_the_lease_is_extended_from_now() -> None:
    job = held()
    before = database_now()
    with changes(job.id) as changed:
        assert heartbeat([job], 60) == [(job.id, "held")]
    assert changed.keys() == {"reserved_until"}
    assert before <= changed["reserved_until"] - dt.timedelta(minutes=1) <= database_now()


def test_the_lease_is_never_shortened() -> None:
    job = JobFactory(reserved=True)
    until = columns(job.pk)["reserved_until"]
    with connection.cursor() as cursor:
        cursor.execute("SELECT verdict FROM pgjobs_heartbeat(%s, %s, interval '1 s')", [[job.pk], [job.lease]])
        assert cursor.fetchone() == ("held",)
    assert columns(job.pk)["reserved_until"] == until


def test_a_lapsed_lease_that_nobody_reaped_is_saved() -> None:
    job = held()
    lapse(job.id)
    assert heartbeat([job]) == [(job.id, "held")]
    assert store.reap(connection) == []


def test_an_answer_for_each(hold_row: Hold) -> None:
    JobFactory.create_batch(4)
    jobs = claim()
    hold_row(jobs[3].id)
    store.cancel(connection, [jobs[1].id])
    assert heartbeat(jobs, flip=2) == [
        (jobs[0].id, "held"), (jobs[1].id, "cancel"), (jobs[2].id, "lost"), (jobs[3].id, "busy"),
    ]  # fmt: skip
    assert heartbeat([]) == []


def test_it_stays_on_its_page_and_out_of_the_indexes() -> None:
    """A heartbeat is a HOT update: no entry of any index is written (F63)."""
    job = held()
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_stat_get_xact_tuples_hot_updated('pgjobs_job'::regclass)")
        [before] = cursor.fetchone()
        for _ in range(5):
            heartbeat([job])
        cursor.execute("SELECT pg_stat_get_xact_tuples_hot_updated('pgjobs_job'::regclass)")
        assert cursor.fetchone()[0] == before + 5
