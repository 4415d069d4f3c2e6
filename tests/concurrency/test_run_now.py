"""Two calls with one key of a schedule."""

from __future__ import annotations

import pytest

from pgjobs.models import Job, Schedule
from tests.concurrency.conftest import Session

CALL = (
    "SELECT id, created FROM pgjobs_run_now(%s, clock_timestamp(), 'k', '2026-12-01 00:00Z', 'add', '{}', 0, 10, NULL,"
    " 'default', NULL)"
)


@pytest.mark.parametrize("ends", [False, True])
def test_a_second_call_waits_for_the_first_and_gets_its_job(a: Session, b: Session, ends: bool) -> None:
    """Also when that job has ended by the time at which it can be seen: then nothing live holds the key any more."""
    schedule = Schedule.objects.create(name="nightly", kind="add", cron="0 3 * * *", timezone="UTC")
    a.begin()
    [(id_, created)] = a.run(CALL, schedule.pk)
    assert created
    waiting = b.blocks(CALL, schedule.pk)
    if ends:
        a.run("UPDATE pgjobs_job SET status = 'done', finished_at = clock_timestamp() WHERE id = %s", id_)
    a.commit()
    assert waiting.result(30) == [(id_, False)]
    assert [job.pk for job in Job.objects.all()] == [id_]


def test_after_the_firsts_rollback_the_second_has_its_own(a: Session, b: Session) -> None:
    schedule = Schedule.objects.create(name="nightly", kind="add", cron="0 3 * * *", timezone="UTC")
    a.begin()
    [(lost, _)] = a.run(CALL, schedule.pk)
    waiting = b.blocks(CALL, schedule.pk)
    a.rollback()
    [(id_, created)] = waiting.result(30)
    assert created
    assert id_ != lost
