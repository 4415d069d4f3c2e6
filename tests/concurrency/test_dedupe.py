"""Two transactions and one dedupe key."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import connection, transaction

from pgjobs import enqueue, sql, store
from pgjobs.models import Job
from tests.concurrency.conftest import Session, Sessions
from tests.factories import JobFactory
from tests.rows import columns, held
from tests.testapp.models import Note

ENQUEUE = "SELECT id, created, action FROM pgjobs_enqueue('scripted', %s, p_dedupe_key => 'k', p_on_conflict => %s)"
modes = pytest.mark.parametrize("mode", ["keep", "replace", "rerun"])


@modes
def test_two_transactions_with_the_same_key_both_commit_and_one_job_exists(a: Session, b: Session, mode: str) -> None:
    """F29"""
    a.begin()
    b.begin()
    for one in (a, b):
        one.run("INSERT INTO testapp_note (text) VALUES ('work')")
    [(id_, created, _)] = a.run(ENQUEUE, '{"n": 1}', mode)
    assert created
    waiting = b.blocks(ENQUEUE, '{"n": 2}', mode)
    a.commit()
    [(same, created, action)] = waiting.result(30)
    assert (same, created, action) == (id_, False, "replaced" if mode == "replace" else "kept")
    b.commit()
    assert Job.objects.get().payload == {"n": 2 if mode == "replace" else 1}
    assert Note.objects.count() == 2


@modes
def test_after_the_others_rollback_the_job_exists(a: Session, b: Session, mode: str) -> None:
    """F30: the wait is as long as the other's transaction; nothing is lost."""
    a.begin()
    [(lost, _, _)] = a.run(ENQUEUE, "{}", mode)
    waiting = b.blocks(ENQUEUE, '{"n": 2}', mode)
    a.rollback()
    [(id_, created, action)] = waiting.result(30)
    assert (created, action) == (True, "created")
    assert id_ != lost
    assert Job.objects.get().payload == {"n": 2}


def test_whoever_does_not_want_to_wait_sets_lock_timeout(a: Session, b: Session) -> None:
    """F30: a named exception; the caller's savepoint decides."""
    a.begin()
    a.run(ENQUEUE, "{}", "keep")
    b.begin()
    b.run("SET LOCAL lock_timeout = '50ms'")
    b.run("SAVEPOINT s")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        b.run(ENQUEUE, "{}", "keep")
    b.run("ROLLBACK TO s")
    b.run("INSERT INTO testapp_note (text) VALUES ('work')")
    b.commit()
    a.rollback()
    assert Note.objects.count() == 1


@modes
@pytest.mark.parametrize("ends", ["done", "cancelled", "gone"])
def test_a_holder_that_ends_between_insert_and_look_up_makes_the_key_free(
    a: Session, b: Session, mode: str, ends: str
) -> None:
    """F25: the insert waits for the holder's own transaction, which ends it: never nothing."""
    job = held(dedupe_key="k")
    a.begin()
    if ends == "done":
        a.run("SELECT * FROM pgjobs_finish_many(%s, %s)", [job.id], [job.lease])
    elif ends == "cancelled":
        a.run("SELECT pgjobs_cancel_held(%s, %s, 'enough')", job.id, job.lease)
    else:
        a.run("DELETE FROM pgjobs_job WHERE id = %s", job.id)
    waiting = b.blocks(ENQUEUE, '{"n": 2}', mode)
    a.commit()
    [(id_, created, _)] = waiting.result(30)
    assert created
    assert id_ != job.id
    assert Job.objects.get(status="pending").payload == {"n": 2}


def test_the_look_up_is_tried_again_as_often_as_the_holder_changes(a: Session, b: Session, c: Session) -> None:
    """F25: twice in the gap. The insert meets a holder that is gone when it looks, and then another one."""
    a.begin()
    a.run(ENQUEUE, '{"n": 1}', "keep")
    waiting = b.blocks(ENQUEUE, '{"n": 2}', "keep")
    next_in_line = c.blocks(ENQUEUE, '{"n": 3}', "keep")
    a.run("UPDATE pgjobs_job SET status = 'cancelled', finished_at = now() WHERE dedupe_key = 'k'")
    a.commit()
    answers = [waiting.result(30)[0], next_in_line.result(30)[0]]
    assert sorted(created for _, created, _ in answers) == [False, True]
    assert len({id_ for id_, _, _ in answers}) == 1
    assert Job.objects.filter(status="pending").count() == 1


@modes
@pytest.mark.parametrize("then", ["free", "another"])
def test_a_holder_that_ends_after_the_insert_and_before_the_look_up(
    a: Session, b: Session, c: Session, mode: str, then: str
) -> None:
    """F25: with a gate in the gap. The insert has met the holder; when it looks, the holder is gone."""
    gap = "    SELECT j.id, j.status, j.expires_at INTO v_holder"
    text = sql.text("enqueue").replace("FUNCTION pgjobs_enqueue(", "FUNCTION gated_enqueue(")
    assert text.count(gap) == 1
    a.run(text.replace(gap, f"    PERFORM pg_advisory_xact_lock_shared(25);\n{gap}"))
    try:
        job = held(dedupe_key="k")
        c.run("SELECT pg_advisory_lock(25)")
        waiting = b.blocks(ENQUEUE.replace("pgjobs_enqueue", "gated_enqueue"), '{"n": 2}', mode)
        a.run("SELECT pgjobs_finish(%s, %s, true)", job.id, job.lease)
        a.run("SELECT pgjobs_prune(%s)", [job.id])
        if then == "another":
            [(another, _, _)] = a.run(ENQUEUE, '{"n": 1}', "keep")
        c.run("SELECT pg_advisory_unlock(25)")
        [(id_, created, _)] = waiting.result(30)
    finally:
        a.run("DROP FUNCTION gated_enqueue")
    assert created == (then == "free")
    assert Job.objects.get(status="pending").pk == id_ == (id_ if then == "free" else another)


@modes
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_above_read_committed_a_concurrent_duplicate_is_a_serialization_failure(
    a: Session, b: Session, level: str, mode: str
) -> None:
    """As for any insert; and a duplicate that was there before is told as ever."""
    b.begin(f"ISOLATION LEVEL {level}")
    b.run("SELECT count(*) FROM testapp_note")  # takes its snapshot
    a.run(ENQUEUE, "{}", "keep")
    with pytest.raises(psycopg.errors.SerializationFailure):
        b.run(ENQUEUE, "{}", mode)
    b.rollback()
    b.begin(f"ISOLATION LEVEL {level}")
    assert b.run(ENQUEUE, "{}", "keep")[0][2] == "kept"
    b.commit()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_sessions_of_another_isolation_enqueue_claim_and_finish(session: Sessions, level: str) -> None:
    one = session(options=f"-c default_transaction_isolation={level.lower().replace(' ', chr(92) + ' ')}")
    assert one.run("SHOW transaction_isolation") == [(level.lower(),)]
    [(id_, created, _)] = one.run(ENQUEUE, "{}", "keep")
    assert created
    assert one.run(ENQUEUE, '{"n": 2}', "replace")[0][1:] == (False, "replaced")
    [(claimed, lease)] = one.run("SELECT id, lease FROM pgjobs_claim(5, 'w')")
    assert claimed == id_
    assert one.run(ENQUEUE, '{"n": 3}', "rerun")[0][2] == "rerun"
    assert one.run("SELECT verdict FROM pgjobs_heartbeat(%s, %s, '1 min')", [id_], [lease]) == [("held",)]
    assert one.run("SELECT pgjobs_finish(%s, %s, true)", id_, lease) == [("done",)]
    assert Job.objects.get(status="pending").payload == {"n": 3}


def test_many_threads_with_few_keys_never_fail_and_leave_one_job_a_key(session: Sessions) -> None:
    sessions = [session() for _ in range(6)]

    def enqueues(one: Session, factor: int) -> int:
        return sum(
            one.run("SELECT created FROM pgjobs_enqueue('scripted', p_dedupe_key => %s)", f"k{n * factor % 7}")[0][0]
            for n in range(60)
        )

    with ThreadPoolExecutor(len(sessions)) as pool:
        created = list(pool.map(enqueues, sessions, range(1, 7)))
    assert sum(created) == 7
    assert Job.objects.count() == 7


def test_two_calls_of_enqueue_many_in_opposite_orders_do_not_deadlock(session: Sessions) -> None:
    """Keys are taken in their order, whatever the order of the call."""
    keys = [f"k{n}" for n in range(300)]
    start = threading.Barrier(2)

    def jobs(order: list[str]) -> str:
        return "[" + ",".join(f'{{"k": "scripted", "p": {{}}, "u": "{key}"}}' for key in order) + "]"

    a, b = session(), session()
    for _ in range(3):
        futures = []
        for one, order in ((a, keys), (b, keys[::-1])):
            one._thread.submit(start.wait, 20)
            futures.append(one.start("SELECT place, created FROM pgjobs_enqueue_many(%s::jsonb)", jobs(order)))
        first, second = (dict(future.result(60)) for future in futures)
        assert sum(first.values()) + sum(second.values()) == 300
        assert Job.objects.count() == 300
        Job.objects.all().delete()


def test_enqueue_many_of_python_takes_keys_in_order_over_all_its_chunks(
    a: Session, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    from pgjobs import enqueue_many
    from tests.testapp.jobs import echo

    monkeypatch.setattr("pgjobs.api.enqueueing.CHUNK", 2)
    with transaction.atomic():
        handles = enqueue_many([echo.using(dedupe_key=key).prepare(key=key) for key in ("d", "b", "c", "a")])
        order = a.blocks("SELECT id FROM pgjobs_enqueue('echo', p_dedupe_key => 'a')")
    assert order.result(30) == [(handles[3].id,)]
    ids = {h.get().dedupe_key: h.id for h in handles}
    assert [key for key, _ in sorted(ids.items(), key=lambda item: item[1])] == ["a", "b", "c", "d"]


def test_requeue_waits_for_an_uncommitted_enqueue_of_the_same_key_and_tells_who_has_it(a: Session, b: Session) -> None:
    """F28"""
    dead = JobFactory(dead=True, dedupe_key="k")
    a.begin()
    [(id_, _, _)] = a.run(ENQUEUE, "{}", "keep")
    waiting = b.blocks("SELECT * FROM pgjobs_requeue(%s)", [dead.pk])
    a.commit()
    assert waiting.result(30) == [(dead.pk, "key_in_use", id_)]
    assert columns(dead.pk)["status"] == "dead"


def test_requeue_takes_the_key_when_the_other_rolls_back(a: Session, b: Session) -> None:
    dead = JobFactory(dead=True, dedupe_key="k")
    a.begin()
    a.run(ENQUEUE, "{}", "keep")
    waiting = b.blocks("SELECT * FROM pgjobs_requeue(%s)", [dead.pk])
    a.rollback()
    assert waiting.result(30) == [(dead.pk, "requeued", None)]


def test_enqueue_waits_for_an_uncommitted_requeue_of_the_same_key(a: Session, b: Session) -> None:
    dead = JobFactory(dead=True, dedupe_key="k")
    a.begin()
    assert a.run("SELECT * FROM pgjobs_requeue(%s)", [dead.pk]) == [(dead.pk, "requeued", None)]
    waiting = b.blocks(ENQUEUE, "{}", "keep")
    a.commit()
    assert waiting.result(30) == [(dead.pk, False, "kept")]


def test_django_callers_both_commit(a: Session, transactional_db: None) -> None:
    a.begin()
    a.run(ENQUEUE, "{}", "keep")
    outcome = []

    def other_request() -> None:
        try:
            with transaction.atomic():
                Note.objects.create(text="mine")
                outcome.append(enqueue("scripted", {}, dedupe_key="k"))
        finally:
            connection.close()

    thread = threading.Thread(target=other_request)
    thread.start()
    a.commit()
    thread.join(30)
    assert [handle.created for handle in outcome] == [False]
    assert Note.objects.count() == 1
    assert Job.objects.count() == 1


def test_a_holder_claimed_in_the_moment_of_a_replace_gets_a_wish(a: Session, b: Session) -> None:
    holder = JobFactory(dedupe_key="k", payload={"n": 1})
    a.begin()
    a.run("SELECT id FROM pgjobs_claim(1, 'w')")
    waiting = b.blocks(ENQUEUE, '{"n": 2}', "replace")
    a.commit()
    assert waiting.result(30) == [(holder.pk, False, "rerun")]
    assert columns(holder.pk)["payload"] == {"n": 1}
    store.finish_many(connection, [holder.pk], [columns(holder.pk)["lease"]], {}, {})
    assert Job.objects.get(status="pending").payload == {"n": 2}
