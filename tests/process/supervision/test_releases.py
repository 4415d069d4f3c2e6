"""Old code and new code work beside each other for the length of a deploy: no job meets the wrong one."""

from __future__ import annotations

from typing import Any

from pgjobs.models import Job
from tests.factories import JobFactory

from .conftest import Fleet, causes, children, nothing_is_left, stop_well, wait_status

OLD, NEW = {"TESTAPP_RELEASE": "1"}, {"TESTAPP_RELEASE": "2"}


def enqueue(kind: str, **payload: Any) -> int:
    """As the release that knows the kind does it."""
    id_: int = JobFactory(kind=kind, payload=payload).pk
    return id_


def test_a_rolling_deploy_of_new_kinds_renames_and_signatures(run_jobs: Fleet) -> None:
    """F126, F127: a new kind waits for the new code, a renamed one is found by its alias, an old payload is upgraded; and
    the old code goes on with what it knows as long as it runs.
    """
    old = run_jobs("--threads", 2, env=OLD)
    new_kind = enqueue("receipt", order_id=1)
    renamed = enqueue("mail_invoice", order_id=2, currency="CHF")
    before = enqueue("invoice", order_id=3)
    assert wait_status(before, "done").result == "release 1: 3"
    waiting = Job.objects.filter(pk__in=(new_kind, renamed))
    assert set(waiting.values_list("status", "attempts", "refunds")) == {("pending", 0, 0)}, "not even touched"

    new = run_jobs("--threads", 2, env=NEW)
    assert wait_status(new_kind, "done").result == "release 2: receipt 1"
    assert wait_status(renamed, "done").result == "release 2: 2 CHF"
    [new_pid] = children(new.popen.pid)
    assert {job.worker.split(":")[1] for job in waiting} == {str(new_pid)}
    both = [enqueue("invoice", order_id=n) for n in range(100)]
    results = {wait_status(id_, "done").result for id_ in both}
    print(
        f"100 jobs of the old kind, with both: {sum(str(r).startswith('release 2') for r in results)} by the new code"
    )
    assert results <= {f"release 1: {n}" for n in range(100)} | {f"release 2: {n} EUR" for n in range(100)}

    stop_well(old)
    after = enqueue("invoice", order_id=4)
    assert wait_status(after, "done").result == "release 2: 4 EUR"
    assert set(Job.objects.values_list("attempts", flat=True)) == {1}
    assert not [id_ for id_ in (*both, after) if causes(id_)]
    nothing_is_left()
    stop_well(new)
