"""The bell: inserters tell workers that sleep, and nobody else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection

from pgjobs import store
from tests.conftest import Connect
from tests.factories import JobFactory
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

INSERT = "INSERT INTO pgjobs_job (kind, queue) VALUES ('k', 'q')"
CLAIM = """SELECT meta FROM pgjobs_claim_many(1, 'w', NULL, '15 s', NULL, NULL, NULL, p_asleep => %s, p_doze => %s)
           WHERE id IS NULL"""


@pytest.fixture
def heard(connect: Connect) -> Callable[[], list[str]]:
    """Answers the payloads that a listener has heard since the last time."""
    listener = connect()
    listener.execute("LISTEN pgjobs")

    def since() -> list[str]:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify('pgjobs', '(the end)')")
        payloads: list[str] = []
        for notice in listener.notifies(timeout=20):
            if notice.payload == "(the end)":
                return payloads
            payloads.append(notice.payload)
        raise AssertionError("the listener hears nothing")

    return since


def see(worker: psycopg.Connection[Any], asleep: bool, doze: bool) -> dict[str, Any]:
    [row] = worker.execute(CLAIM, (asleep, doze)).fetchall()
    seen: dict[str, Any] = row[0]
    return seen


def test_nobody_is_told_while_all_are_awake(connect: Connect, heard: Callable[[], list[str]]) -> None:
    """F68"""
    connect().execute(INSERT)
    assert heard() == []


def test_a_claim_that_finds_nothing_falls_asleep_and_one_that_does_wakes(
    connect: Connect, heard: Callable[[], list[str]]
) -> None:
    worker, web = connect(), connect()
    assert see(worker, False, False)["asleep"] is False
    assert see(worker, False, True)["asleep"] is True
    web.execute(INSERT)
    assert heard() == ["q"]
    assert see(worker, True, True)["asleep"] is False, "it found the job"
    web.execute(INSERT)
    assert heard() == []
    assert see(worker, False, True)["asleep"] is False
    assert see(worker, False, True)["asleep"] is True
    assert see(worker, True, False)["asleep"] is True, "still nothing"
    web.execute(INSERT)
    assert heard() == ["q"]


def test_several_may_sleep(connect: Connect, heard: Callable[[], list[str]]) -> None:
    one, other, web = connect(), connect(), connect()
    assert see(one, False, True)["asleep"]
    assert see(other, False, True)["asleep"]
    one.close()
    web.execute(INSERT)
    assert heard() == ["q"], "the other still sleeps"


def test_who_inserted_before_the_worker_fell_asleep_is_unsettled_until_its_end(connect: Connect) -> None:
    worker, web = connect(), connect(autocommit=False)
    web.execute(INSERT)
    fell = see(worker, False, True)
    assert fell["settled"] < fell["unsettled"]
    assert see(worker, True, True)["settled"] < fell["unsettled"], "still open"
    web.rollback()
    # Transactions of the whole server count, those of other tests too.
    wait_until(lambda: see(worker, True, True)["settled"] >= fell["unsettled"], "all of them to end")


def test_an_inserter_keeps_no_lock(connect: Connect) -> None:
    """In a transaction that stays open it would make others believe that somebody sleeps; and worse, the workers wait."""
    web = connect(autocommit=False)
    web.execute(INSERT)
    locks = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    assert web.execute(locks).fetchone() == (0,)


def test_a_worker_of_some_queues_is_told_of_those(connect: Connect, heard: Callable[[], list[str]]) -> None:
    worker, web = connect(), connect()
    doze = CLAIM.replace("NULL, '15 s'", "ARRAY['p', 'q'], '15 s'")
    assert worker.execute(doze, (False, True)).fetchall()[0][0]["asleep"]
    web.execute(INSERT.replace("'q'", "'other'"))
    assert heard() == []
    web.execute(INSERT)
    assert heard() == ["q"]
    assert not worker.execute(doze, (True, True)).fetchall()[0][0]["asleep"]
    web.execute(INSERT)
    assert heard() == []


def test_a_lock_that_somebody_keeps_holds_no_worker_up(connect: Connect, heard: Callable[[], list[str]]) -> None:
    """An inserter that was interrupted between taking and giving back, for example."""
    worker, web = connect(), connect()
    web.execute("SELECT pg_advisory_lock(b.class, b.id) FROM pgjobs_bell('p') b")
    doze = CLAIM.replace("NULL, '15 s'", "ARRAY['o', 'p', 'q'], '15 s'")
    assert worker.execute(doze, (False, True)).fetchall()[0][0]["asleep"] is False
    locks = (
        "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
        " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    assert worker.execute(locks).fetchone() == (1,), "it keeps none of the others"
    web.execute("SELECT pg_advisory_unlock_all()")
    assert worker.execute(doze, (False, True)).fetchall()[0][0]["asleep"] is True


def test_the_store_answers_what_was_seen() -> None:
    claim = store.claim(connection, 1, "w", queues=None, exclude_queues=(), kinds=None, lease=15, doze=True)
    assert (claim.asleep, claim.swept, claim.due, claim.jobs) == (True, True, None, [])
    JobFactory()
    claim = store.claim(
        connection, 1, "w", queues=None, exclude_queues=(), kinds=None, lease=15, asleep=True, doze=True
    )
    assert (claim.asleep, len(claim.jobs)) == (False, 1)
