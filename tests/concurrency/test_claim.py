"""Many connections claim; others lock, cancel and meddle."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from django.db import connection

from pgjobs.models import Job
from tests.concurrency.conftest import Session, Sessions
from tests.factories import JobFactory
from tests.rows import columns, held, lapse
from tests.waiting import wait_until_blocked

CLAIM = "SELECT id, lease FROM pgjobs_claim(%s, %s)"
FINISH = "SELECT id, outcome FROM pgjobs_finish_many(%s::bigint[], %s::bigint[])"


def load(rows: int, columns: str = "", values: str = "") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO pgjobs_job (kind{columns and ', ' + columns}) SELECT 'scripted'{values and ', ' + values}"  # noqa: S608
            f" FROM generate_series(1, {rows}) n"
        )


def drain(limit: int, worker: str, finish: bool = False) -> Callable[[psycopg.Connection[Any]], list[int]]:
    def claims(connection: psycopg.Connection[Any]) -> list[int]:
        taken: list[int] = []
        while rows := connection.execute(CLAIM, [limit, worker]).fetchall():
            assert len(rows) <= limit
            taken += [id_ for id_, _ in rows]
            held = dict(rows) if finish else {}
            while held:  # those that an operator holds for a moment are tried again
                answers = connection.execute(FINISH, [list(held), list(held.values())]).fetchall()
                held = {id_: held[id_] for id_, outcome in answers if outcome == "busy"}
        return taken

    return claims


@pytest.mark.parametrize("queues", [1, 5])
def test_eight_claim_two_thousand_jobs_each_exactly_once(session: Sessions, queues: int) -> None:
    """F20"""
    load(2000, "queue, priority", f"'q' || n % {queues}, n % 3")
    sessions = [session() for _ in range(8)]
    futures = [
        one._thread.submit(drain(7 + n, f"w-{n}", finish=n % 2 == 0), one.connection) for n, one in enumerate(sessions)
    ]
    taken = [id_ for future in futures for id_ in future.result(90)]
    # A claim that meets only rows that others are just taking may come back empty before the end: take the rest.
    taken += drain(100, "last")(sessions[0].connection)
    assert len(taken) == 2000
    assert len(set(taken)) == 2000
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert Counter(Job.objects.values_list("status", flat=True)).keys() <= {"reserved", "done"}


def test_each_claim_is_exactly_once_beside_meddling(session: Sessions) -> None:
    """Updates of pending rows move them on the page while they are looked at: none is lost, none taken twice."""
    load(1500, "queue", "'q' || n % 3")
    workers = [session() for _ in range(4)]
    meddlers = [session() for _ in range(3)]
    meddle = (
        "DO $$ DECLARE v record; BEGIN FOR i IN 1..150 LOOP"
        " PERFORM pgjobs_reschedule(ARRAY(SELECT id FROM pgjobs_job WHERE status = 'pending' ORDER BY random() LIMIT 10),"
        " clock_timestamp() - random() * interval '1 hour', (random() * 10)::int, 'q' || (random() * 3)::int);"
        " COMMIT; END LOOP; END $$"
    )
    futures = [one._thread.submit(drain(10, f"w-{n}"), one.connection) for n, one in enumerate(workers)]
    others = [one.start(meddle) for one in meddlers]
    taken = [id_ for future in futures for id_ in future.result(90)]
    for other in others:
        other.result(90)
    taken += drain(100, "last")(workers[0].connection)
    assert len(taken) == len(set(taken)) == 1500
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}


HOSTILE = (
    "enable_hashjoin=off enable_mergejoin=off enable_hashagg=off",
    "enable_nestloop=off enable_indexscan=off enable_indexonlyscan=off",
    "enable_tidscan=off enable_material=off",
    "plan_cache_mode=force_custom_plan",
    "jit=on jit_above_cost=0",
)


@pytest.mark.parametrize("settings", HOSTILE)
def test_never_more_than_the_limit_beside_locks_and_a_hostile_planner(
    session: Sessions, a: Session, settings: str
) -> None:
    """F19"""
    load(300, "queue", "'q' || n % 3")
    a.begin()
    a.run("SELECT id FROM pgjobs_job WHERE id % 4 = 0 FOR UPDATE")
    one = session(options=" ".join(f"-c {s}" for s in settings.split()))
    taken = [len(one.run(CLAIM, 5, "w")) for _ in range(10)]
    assert taken == [5] * 10
    assert Job.objects.filter(status="reserved").count() == 50
    assert not [id_ for id_ in Job.objects.filter(status="reserved").values_list("id", flat=True) if id_ % 4 == 0]


@pytest.mark.parametrize("lock", ["FOR UPDATE", "FOR SHARE"])
def test_the_order_across_queues_holds_among_rows_that_nobody_holds(a: Session, b: Session, lock: str) -> None:
    """F116"""
    rng = random.Random(lock)
    load(200, "queue", "'q' || n % 4")
    jobs = list(Job.objects.order_by("id"))
    for job in jobs:
        Job.objects.filter(pk=job.pk).update(priority=rng.choice([0, 5]))
    locked = {job.pk for job in jobs if rng.random() < 0.4}
    a.begin()
    a.run(f"SELECT id FROM pgjobs_job WHERE id = ANY (%s) {lock}", sorted(locked))  # noqa: S608
    free = list(
        Job.objects.exclude(pk__in=locked).order_by("-priority", "run_after", "id").values_list("id", flat=True)
    )
    taken: list[int] = []
    while rows := b.run(CLAIM, 7, "w"):
        taken += [id_ for id_, _ in rows]
    assert taken == free


def test_a_claim_does_not_wait_for_one_that_has_not_committed(a: Session, b: Session) -> None:
    load(10)
    a.begin()
    first = a.run(CLAIM, 4, "w-1")
    second = b.run(CLAIM, 100, "w-2")
    a.rollback()
    assert [len(first), len(second)] == [4, 6]
    assert sorted(b.run(CLAIM, 100, "w-2")) != sorted(first), "another lease"
    assert Job.objects.filter(status="reserved").count() == 10


def test_a_claim_takes_no_row_that_changed_while_it_looked(a: Session, b: Session) -> None:
    job = JobFactory()
    a.begin()
    a.run("SELECT * FROM pgjobs_cancel(%s)", [job.pk])
    assert b.run(CLAIM, 1, "w") == []
    a.commit()
    assert b.run(CLAIM, 1, "w") == []


# Cancel --------------------------------------------------------------------------------------------------------------


def test_cancel_then_claim(a: Session, b: Session) -> None:
    """F24: cancelled and never run."""
    job = JobFactory()
    assert a.run("SELECT outcome FROM pgjobs_cancel(%s)", [job.pk]) == [("cancelled",)]
    assert b.run(CLAIM, 1, "w") == []
    assert columns(job.pk)["attempts"] == 0


def test_cancel_beside_a_claim_that_has_not_committed(a: Session, b: Session) -> None:
    """F24: it is told as busy, and a second try is a request that the worker sees."""
    job = JobFactory()
    a.begin()
    [(_, lease)] = a.run(CLAIM, 1, "w")
    assert b.run("SELECT outcome FROM pgjobs_cancel(%s)", [job.pk]) == [("busy",)]
    a.commit()
    assert b.run("SELECT outcome FROM pgjobs_cancel(%s)", [job.pk]) == [("requested",)]
    assert a.run("SELECT verdict FROM pgjobs_heartbeat(%s, %s, '1 min')", [job.pk], [lease]) == [("cancel",)]


def test_bulk_cancel_beside_claims_neither_deadlocks_nor_loses_a_job(session: Sessions) -> None:
    load(1000)
    workers, operators = [session() for _ in range(3)], [session() for _ in range(3)]
    futures = [one._thread.submit(drain(20, f"w-{n}", finish=True), one.connection) for n, one in enumerate(workers)]
    cancel = (
        "DO $$ BEGIN FOR i IN 1..20 LOOP PERFORM pgjobs_cancel(ARRAY("
        "SELECT id FROM pgjobs_job WHERE status IN ('pending', 'reserved') ORDER BY id {order} LIMIT 50)); COMMIT;"
        " END LOOP; END $$"
    )
    others = [one.start(cancel.format(order=order)) for one, order in zip(operators, ("ASC", "DESC", ""), strict=True)]
    taken = [id_ for future in futures for id_ in future.result(90)]
    for other in others:
        other.result(90)
    drain(100, "last", finish=True)(workers[0].connection)
    assert len(taken) == len(set(taken))
    statuses = Counter(Job.objects.values_list("status", flat=True))
    assert statuses.keys() <= {"done", "cancelled"}
    assert sum(statuses.values()) == 1000
    assert set(Job.objects.filter(status="cancelled").values_list("attempts", flat=True)) <= {0}


def test_bulk_actions_of_operators_do_not_deadlock_with_each_other(session: Sessions) -> None:
    load(400)
    verbs = [
        "pgjobs_cancel({ids})",
        "pgjobs_reschedule({ids}, p_priority => 5)",
        "pgjobs_bury_pending({ids})",
        "pgjobs_requeue({ids})",
    ]
    loop = "DO $$ BEGIN FOR i IN 1..15 LOOP PERFORM {verb}; COMMIT; END LOOP; END $$"
    ids = "ARRAY(SELECT id FROM pgjobs_job ORDER BY id {order})"
    futures = [
        session().start(loop.format(verb=verb.format(ids=ids.format(order=order))))
        for verb in verbs
        for order in ("ASC", "DESC")
    ]
    for future in futures:
        future.result(90)
    assert Job.objects.count() == 400


# Reap, finish, release -------------------------------------------------------------------------------------------------


def test_reap_passes_over_a_job_that_is_just_being_finished(a: Session, b: Session) -> None:
    """F2"""
    job = held()
    lapse(job.id)
    a.begin()
    assert a.run("SELECT pgjobs_finish(%s, %s, true)", job.id, job.lease) == [("done",)]
    assert b.run("SELECT id FROM pgjobs_reap()") == []
    a.commit()
    assert b.run("SELECT id FROM pgjobs_reap()") == []
    assert columns(job.id)["status"] == "done"


def test_a_finish_beside_reap_is_busy_then_lost(a: Session, b: Session) -> None:
    """F2, the other order: the loser changes nothing."""
    job = held()
    lapse(job.id)
    a.begin()
    assert a.run("SELECT id FROM pgjobs_reap()") == [(job.id,)]
    assert b.run("SELECT outcome FROM pgjobs_finish_many(%s, %s)", [job.id], [job.lease]) == [("busy",)]
    waiting = b.blocks("SELECT pgjobs_finish(%s, %s, true)", job.id, job.lease)
    a.commit()
    assert waiting.result(30) == [(None,)]
    assert b.run("SELECT outcome FROM pgjobs_finish_many(%s, %s)", [job.id], [job.lease]) == [("lost",)]
    assert (columns(job.id)["status"], columns(job.id)["result"]) == ("pending", None)


def test_a_heartbeat_beside_reap_saves_or_loses_the_job_never_both(a: Session, b: Session) -> None:
    job = held()
    lapse(job.id)
    a.begin()
    assert a.run("SELECT verdict FROM pgjobs_heartbeat(%s, %s, '1 min')", [job.id], [job.lease]) == [("held",)]
    assert b.run("SELECT id FROM pgjobs_reap()") == []
    a.commit()
    assert b.run("SELECT id FROM pgjobs_reap()") == []


def test_two_reapers_take_each_row_once(session: Sessions) -> None:
    JobFactory.create_batch(200, lapsed=True, history=False)
    futures = [session().start("SELECT id FROM pgjobs_reap(50)") for _ in range(6)]
    reaped = [id_ for future in futures for (id_,) in future.result(30)]
    assert len(reaped) == len(set(reaped))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(DISTINCT job_id) FROM pgjobs_attempt")
        assert cursor.fetchone() == (len(reaped), len(reaped))


def test_two_that_prune_take_each_row_once_and_do_not_deadlock(session: Sessions) -> None:
    """F69"""
    JobFactory.create_batch(200, done=True, history=False)
    futures = [session().start("SELECT pgjobs_prune_old('done', '0', 40)") for _ in range(5)]
    first = sum(future.result(30)[0][0] for future in futures)
    rest = 0
    while pruned := session().run("SELECT pgjobs_prune_old('done', '0', 40)")[0][0]:
        rest += pruned
    assert first + rest == 200
    assert not Job.objects.exists()


# Isolation -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_claims_of_another_isolation_are_exactly_once_or_a_serialization_failure(session: Sessions, level: str) -> None:
    load(200)
    options = "-c default_transaction_isolation=" + level.lower().replace(" ", "\\ ")

    def claims(connection: psycopg.Connection[Any]) -> list[int]:
        taken: list[int] = []
        failures = 0
        while failures < 1000:
            try:
                rows = connection.execute(CLAIM, [5, "w"]).fetchall()
            except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
                failures += 1
                continue
            if not rows:
                break
            taken += [id_ for id_, _ in rows]
        return taken

    sessions = [session(options=options) for _ in range(4)]
    futures = [one._thread.submit(claims, one.connection) for one in sessions]
    taken = [id_ for future in futures for id_ in future.result(60)]
    taken += claims(sessions[0].connection)
    assert len(taken) == len(set(taken)) == 200


def test_a_lock_waiter_of_finish_gets_the_full_answer_after_a_foreign_key_lock(
    a: Session, b: Session, c: Session
) -> None:
    job = held()
    a.begin()
    a.run("SELECT id FROM pgjobs_job WHERE id = %s FOR SHARE", job.id)
    waiting = b.start("SELECT pgjobs_finish(%s, %s, true, p_result => '1')", job.id, job.lease)
    wait_until_blocked(c.connection, b.connection.info.backend_pid)
    a.rollback()
    assert waiting.result(30) == [("done",)]
    assert columns(job.id)["result"] == 1
