"""Wishes and the end of their holder, in every order of commits: nothing is swallowed."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from django.db import connection

from pgjobs import store
from pgjobs.models import Job, Rerun
from tests.concurrency.conftest import Session, Sessions
from tests.rows import columns, held

WISH = "SELECT id, created, action FROM pgjobs_enqueue('scripted', %s, p_dedupe_key => 'k', p_on_conflict => 'rerun')"
FINISH = "SELECT pgjobs_finish(%s, %s, true)"


def pending() -> list[Any]:
    return list(Job.objects.filter(status="pending").values_list("payload", flat=True))


def test_a_wish_that_commits_after_the_holder_ended_is_granted_by_its_own_commit(a: Session, b: Session) -> None:
    """F26; and the finish does not wait for the wisher's open transaction."""
    job = held(dedupe_key="k")
    a.begin()
    assert a.run(WISH, '{"n": 2}') == [(job.id, False, "rerun")]
    assert b.run("SELECT * FROM pgjobs_finish_many(%s, %s)", [job.id], [job.lease]) == []
    assert pending() == []
    a.commit()
    assert pending() == [{"n": 2}]
    assert not Rerun.objects.exists()


def test_a_wish_that_is_rolled_back_is_none(a: Session, b: Session) -> None:
    job = held(dedupe_key="k")
    a.begin()
    a.run(WISH, '{"n": 2}')
    b.run(FINISH, job.id, job.lease)
    a.rollback()
    assert pending() == []


def test_a_wish_that_commits_first_is_granted_by_the_end_of_the_holder(a: Session, b: Session) -> None:
    job = held(dedupe_key="k")
    b.begin()
    a.run(WISH, '{"n": 2}')
    b.run(FINISH, job.id, job.lease)
    assert pending() == [], "not committed yet"
    b.commit()
    assert pending() == [{"n": 2}]


def test_the_latest_wish_wins_and_no_end_waits_for_an_open_one(a: Session, b: Session, c: Session) -> None:
    job = held(dedupe_key="k")
    a.run(WISH, '{"n": 1}')
    b.begin()
    b.run(WISH, '{"n": 2}')
    assert c.run(FINISH, job.id, job.lease) == [("done",)]
    assert pending() == [], "b is changing the wish: it is left to b's commit"
    b.commit()
    assert pending() == [{"n": 2}]


def test_a_wish_that_another_was_changing_and_rolled_back_is_granted_by_the_next_beat(
    a: Session, b: Session, c: Session
) -> None:
    job = held(dedupe_key="k")
    a.run(WISH, '{"n": 1}')
    b.begin()
    b.run(WISH, '{"n": 2}')
    c.run(FINISH, job.id, job.lease)
    b.rollback()
    store.beat(connection, store.Beat("w", "h", 1, [], [], [], 1), ids=[], leases=[], lease=15.0, stopping=False)
    assert pending() == [{"n": 1}]


def test_two_wishers_wait_for_each_other_and_one_new_job_comes_of_it(a: Session, b: Session, c: Session) -> None:
    job = held(dedupe_key="k")
    a.begin()
    a.run(WISH, '{"n": 1}')
    waiting = b.blocks(WISH, '{"n": 2}')
    c.run(FINISH, job.id, job.lease)
    a.commit()
    assert waiting.result(30)[0][2] in ("rerun", "kept")
    assert len(pending()) == 1 or Rerun.objects.exists()
    for id_ in Job.objects.filter(status="pending").values_list("id", flat=True):
        lease = a.run("SELECT lease FROM pgjobs_claim(1, 'w')")[0][0]
        a.run(FINISH, id_, lease)
    assert {"n": 2} in list(Job.objects.values_list("payload", flat=True)), "the second wish ran or waits"


def test_a_wish_beside_a_new_holder_waits_for_that_one(a: Session, b: Session) -> None:
    job = held(dedupe_key="k")
    a.begin()
    a.run(WISH, '{"n": 3}')
    b.run(FINISH, job.id, job.lease)
    [(new, created, _)] = b.run(
        "SELECT id, created, action FROM pgjobs_enqueue('scripted', '{\"n\": 2}', p_dedupe_key => 'k')"
    )
    assert created
    a.commit()
    assert pending() == [{"n": 2}]
    [(claimed, lease)] = b.run("SELECT id, lease FROM pgjobs_claim(1, 'w')")
    assert claimed == new
    b.run(FINISH, new, lease)
    assert pending() == [{"n": 3}]


def test_in_a_storm_of_wishes_the_last_word_is_always_run(session: Sessions) -> None:
    """Whatever the interleaving, some run begins after the last wish."""
    workers = [session() for _ in range(2)]
    wishers = [session() for _ in range(3)]
    wish = (
        "DO $$ BEGIN FOR n IN 1..40 LOOP"
        " INSERT INTO testapp_audit (event, pid, thread, at) VALUES ('wish', 0, 0, clock_timestamp());"
        " PERFORM pgjobs_enqueue('scripted', p_dedupe_key => 'k', p_on_conflict => 'rerun'); COMMIT; END LOOP; END $$"
    )
    work = (
        "DO $$ DECLARE j record; BEGIN FOR n IN 1..400 LOOP FOR j IN SELECT id, lease FROM pgjobs_claim(1, 'w') LOOP"
        " PERFORM pgjobs_finish(j.id, j.lease, true); END LOOP; COMMIT; END LOOP; END $$"
    )
    futures: list[Future[Any]] = [one.start(wish) for one in wishers]
    futures += [one.start(work) for one in workers]
    for future in futures:
        future.result(60)
    # Whatever is left is drained by a worker with its keeper's beat.
    for _ in range(200):
        store.beat(connection, store.Beat("w", "h", 1, [], [], [], 1), ids=[], leases=[], lease=15.0, stopping=False)
        claimed = workers[0].run("SELECT id, lease FROM pgjobs_claim(1, 'w')")
        if not claimed:
            break
        workers[0].run(FINISH, *claimed[0])
    assert not Rerun.objects.exists()
    assert not Job.objects.exclude(status="done").exists()
    [(in_time,)] = workers[0].run(
        "SELECT (SELECT max(last_attempted_at) FROM pgjobs_job) > (SELECT max(at) FROM testapp_audit)"
    )
    assert in_time, "the last run began after the last wish"


@pytest.mark.parametrize("end", ["retry", "snooze", "release"])
def test_a_holder_that_goes_on_does_not_meet_its_own_wish(a: Session, end: str) -> None:
    """Retry, snooze, release and reap cannot meet a duplicate: the wish is no job."""
    job = held(dedupe_key="k")
    a.run(WISH, '{"n": 2}')
    {
        "retry": lambda: store.retry(connection, job.id, job.lease, error="boom"),
        "snooze": lambda: store.snooze(connection, job.id, job.lease, until=5.0),
        "release": lambda: store.release(connection, [job.id], [job.lease], started=True),
    }[end]()
    assert columns(job.id)["status"] == "pending"
    assert Job.objects.count() == 1
