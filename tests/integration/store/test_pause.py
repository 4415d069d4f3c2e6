"""pause, resume: no new claims of a queue or a kind."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from pgjobs import store
from pgjobs.models import Pause
from tests.factories import JobFactory
from tests.rows import claim, database_now, nothing_changes

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("scope", "name"), [("queue", "default"), ("kind", "scripted")])
def test_a_pause_holds_until_it_is_resumed(scope: str, name: str) -> None:
    """F152. What a claim sees of a pause: test_claim."""
    JobFactory()
    store.pause(connection, scope, name, by="ann", reason="deploy")
    pause = Pause.objects.get()
    assert (pause.scope, pause.name, pause.until, pause.by, pause.reason) == (scope, name, None, "ann", "deploy")
    assert claim() == []
    assert store.resume(connection, scope, name) is True
    assert store.resume(connection, scope, name) is False
    assert len(claim()) == 1


def test_a_pause_touches_no_job() -> None:
    JobFactory(reserved=True)
    JobFactory()
    with nothing_changes():
        store.pause(connection, "queue", "default")
        store.resume(connection, "queue", "default")


def test_a_second_pause_replaces_the_first() -> None:
    until = timezone.now() + dt.timedelta(hours=1)
    store.pause(connection, "queue", "default", by="ann")
    before = database_now()
    store.pause(connection, "queue", "default", until=until, by="bob", reason="why")
    pause = Pause.objects.get()
    assert (pause.until, pause.by, pause.reason) == (until, "bob", "why")
    assert pause.created_at >= before


def test_only_queues_and_kinds() -> None:
    with pytest.raises(IntegrityError, match="pgjobs_pause_scope"), transaction.atomic():
        store.pause(connection, "worker", "w-1")


def test_workers_are_told_of_a_resume(heard: Callable[[], list[str]]) -> None:
    store.pause(connection, "queue", "a")
    store.pause(connection, "kind", "k")
    store.resume(connection, "queue", "a")
    store.resume(connection, "queue", "b")
    store.resume(connection, "kind", "k")
    assert heard() == ["a", ""]
