"""fail: reserved → failed."""

from __future__ import annotations

import pytest
from django.db import connection

from pgjobs import store
from tests.rows import NO_LEASE, changes, held, history

pytestmark = pytest.mark.django_db


def test_a_failed_job_says_why_whatever_attempts_are_left() -> None:
    job = held(lost=1)
    with changes(job.id) as changed:
        answer = store.fail(
            connection, job.id, job.lease, error="never", error_class="pgjobs.Fail", traceback="T", log="said"
        )
    assert answer == "failed"
    finished_at = changed.pop("finished_at")
    assert changed == NO_LEASE | {"status": "failed", "last_error": "never", "error_class": "pgjobs.Fail", "lost": 0}
    [row] = history(job.id)
    assert (row["finished_at"], row["outcome"], row["error"], row["log"]) == (finished_at, "failed", "never", "said")
