"""Pauses and workers in the admin."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

import pytest
from django.test import Client
from django.utils import timezone

from pgjobs.models import Pause
from tests.factories import JobFactory, PauseFactory, WorkerFactory
from tests.rows import claim

pytestmark = pytest.mark.django_db

PAUSES = "/admin/pgjobs/pause/"
WORKERS = "/admin/pgjobs/worker/"


def test_adding_one_pauses(ann: Client) -> None:
    JobFactory(queue="mail")
    form = {"scope": "queue", "name": "mail", "until_0": "", "until_1": "", "reason": "the relay moves"}
    assert ann.get(PAUSES + "add/").status_code == 200
    response = ann.post(PAUSES + "add/", form)
    assert response.status_code == 302
    pause = Pause.objects.get()
    assert (pause.scope, pause.name, pause.by, pause.reason, pause.until) == (
        "queue",
        "mail",
        "ann",
        "the relay moves",
        None,
    )
    assert claim() == []
    assert "already exists" in ann.post(PAUSES + "add/", form).content.decode()
    past = timezone.now() - dt.timedelta(hours=1)
    over = ann.post(
        PAUSES + "add/", {**form, "name": "x", "until_0": f"{past:%Y-%m-%d}", "until_1": f"{past:%H:%M:%S}"}
    )
    assert "That is over already" in over.content.decode()


def test_deleting_one_resumes(ann: Client) -> None:
    JobFactory(queue="mail")
    pause, other = PauseFactory(name="mail"), PauseFactory(scope="kind", name="add")
    assert ann.get(PAUSES).status_code == 200
    assert ann.get(f"{PAUSES}{pause.pk}/change/").status_code == 200
    assert ann.post(f"{PAUSES}{pause.pk}/delete/", {"post": "yes"}).status_code == 302
    assert list(Pause.objects.all()) == [other]
    assert len(claim()) == 1
    ann.post(PAUSES, {"action": "delete_selected", "_selected_action": [other.pk], "post": "yes"})
    assert not Pause.objects.exists()


def test_pauses_need_permissions(staff: Callable[..., Client]) -> None:
    pause = PauseFactory()
    client = staff("view_job", "view_pause", "retry_job")
    assert client.get(PAUSES).status_code == 200
    assert client.get(PAUSES + "add/").status_code == 403
    assert client.post(f"{PAUSES}{pause.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.post(f"{PAUSES}{pause.pk}/change/", {"name": "x"}).status_code == 403
    assert Pause.objects.get().name == "default"


def test_workers(ann: Client) -> None:
    alive = WorkerFactory(name="w-<1>", queues=["mail"], exclude_queues=["slow"], kinds=["add"], running=2)
    WorkerFactory(beat_at=timezone.now() - dt.timedelta(minutes=5))
    WorkerFactory(stopping=True)
    text = ann.get(WORKERS).content.decode()
    for said in ("Alive", "Silent", "Stopping", "w-&lt;1&gt;", "mail but slow", "2 on 4 threads"):
        assert said in text
    from django.contrib.admin.utils import quote

    assert ann.get(f"{WORKERS}{quote(alive.pk)}/change/").status_code == 200
    assert ann.get(WORKERS + "add/").status_code == 403
    assert ann.post(f"{WORKERS}{quote(alive.pk)}/delete/", {"post": "yes"}).status_code == 403
