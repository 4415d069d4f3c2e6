"""release_unknown: what a worker holds by its name and does not know of is pending again, the attempt given back."""

from __future__ import annotations

import pytest
from django.db import connection

from pgjobs import store
from tests.factories import JobFactory
from tests.integration.store.conftest import Hold
from tests.rows import NO_LEASE, changes, columns, held, history

pytestmark = pytest.mark.django_db


def test_what_it_knows_stays_and_so_does_what_others_hold() -> None:
    unknown, known, other = held(), held(), JobFactory(reserved=True, worker="w-2")
    before = [columns(id_) for id_ in (known.id, other.pk)]
    with changes(unknown.id) as changed:
        assert store.release_unknown(connection, "w-1", [known.id]) == {unknown.id: "pending"}
    changed.pop("run_after")
    assert changed == NO_LEASE | {
        "status": "pending",
        "attempts": 0,
        "refunds": 1,
        "worker_ids": [],
        "started_at": None,
    }
    assert [columns(id_) for id_ in (known.id, other.pk)] == before
    assert history(unknown.id) == []
    assert store.release_unknown(connection, "w-1", [known.id]) == {}


@pytest.mark.django_db(transaction=True)
def test_a_row_that_somebody_holds_is_busy(hold_row: Hold) -> None:
    job = held()
    let_go = hold_row(job.id)
    assert store.release_unknown(connection, "w-1", []) == {job.id: "busy"}
    let_go()
    assert store.release_unknown(connection, "w-1", []) == {job.id: "pending"}
