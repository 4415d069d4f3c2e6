"""progress, still_owned: what a running handler says and asks."""

from __future__ import annotations

import pytest
from django.db import connection

from pgjobs import store
from tests.rows import changes, held, lapse

pytestmark = pytest.mark.django_db


def test_progress_is_stored_and_moves_nothing() -> None:
    job = held()
    with changes(job.id) as changed:
        assert store.progress(connection, job.id, job.lease, '{"done": 1, "total": 9, "text": "ü"}') == "held"
    assert changed == {"progress": {"done": 1, "total": 9, "text": "ü"}}


def test_a_job_is_owned_while_its_lease_is_this_one_and_has_not_lapsed() -> None:
    """F14"""
    job = held()
    assert store.still_owned(connection, job.id, job.lease) is True
    assert store.still_owned(connection, job.id, job.lease ^ 1) is False
    assert store.still_owned(connection, 10**12, job.lease) is False
    lapse(job.id)
    assert store.still_owned(connection, job.id, job.lease) is False
