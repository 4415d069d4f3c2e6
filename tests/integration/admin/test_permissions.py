"""F141, F143: who may look, who may move, and that nothing is edited."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from tests.factories import JobFactory
from tests.rows import columns, nothing_changes

from .conftest import LIST, act, move, page

pytestmark = pytest.mark.django_db

NEEDS = {"retry_now": "retry_job", "cancel": "cancel_job", "bury": "cancel_job", "prune": "delete_job"}
FITS = {"retry_now": "dead", "cancel": "", "bury": "", "prune": "dead"}


def job_for(name: str) -> object:
    trait = FITS[name]
    return JobFactory(**({trait: True} if trait else {}))


@pytest.mark.parametrize("name", NEEDS)
def test_a_move_needs_its_permission(staff: Callable[..., Client], name: str) -> None:
    job = job_for(name)
    others = [
        codename
        for codename in ("retry_job", "cancel_job", "delete_job", "change_job", "add_job")
        if codename != NEEDS[name]
    ]
    client = staff("view_job", "view_payload", *others)
    assert f'value="{name}"' not in client.get(LIST).content.decode()
    assert move(job, name) not in client.get(page(job)).content.decode()
    with nothing_changes():
        assert act(client, name, job).status_code == 403
        assert client.post(move(job, name)).status_code == 403
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("name", NEEDS)
def test_its_permission_is_enough(staff: Callable[..., Client], name: str) -> None:
    client = staff("view_job", NEEDS[name])
    job = job_for(name)
    assert f'value="{name}"' in client.get(LIST).content.decode()
    assert move(job, name) in client.get(page(job)).content.decode()
    assert act(client, name, job).status_code == 302
    assert client.post(move(job_for(name), name)).status_code == 302
    assert LogEntry.objects.count() == 2


def test_without_view_one_sees_nothing(staff: Callable[..., Client]) -> None:
    job = JobFactory(dead=True)
    client = staff("retry_job", "cancel_job", "delete_job", "view_payload")
    assert client.get(LIST).status_code == 403
    assert client.get(page(job)).status_code == 403
    assert client.post(move(job, "retry_now")).status_code == 403
    assert act(client, "retry_now", job).status_code == 403
    anonymous = Client()
    for address in (LIST, page(job)):
        assert anonymous.get(address).status_code == 302
    assert anonymous.post(move(job, "retry_now")).status_code == 302
    assert columns(job.pk)["status"] == "dead"


def test_nothing_is_edited_added_or_deleted_by_django(ann: Client) -> None:
    job = JobFactory(reserved=True)
    with nothing_changes():
        assert ann.post(page(job), {"status": "done", "_save": "Save"}).status_code == 403
        assert ann.get(LIST + "add/").status_code == 403
        assert ann.post(LIST + "add/", {"kind": "x"}).status_code == 403
        assert ann.get(f"{LIST}{job.pk}/delete/").status_code == 403
        assert ann.post(f"{LIST}{job.pk}/delete/", {"post": "yes"}).status_code == 403
        act(ann, "delete_selected", job)
    assert "delete_selected" not in ann.get(LIST).content.decode()


def test_moves_are_posted(ann: Client) -> None:
    job = JobFactory(dead=True)
    with nothing_changes():
        assert ann.get(move(job, "retry_now")).status_code == 405
        assert ann.get(move(job, "prune")).status_code == 405
    assert ann.post(move(job, "nonsense")).status_code == 403
    assert ann.post(move(99999999999999999999, "retry_now")).status_code == 302


def test_a_forged_request_is_refused(ann: Client) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = ann.cookies
    job = JobFactory(dead=True)
    with nothing_changes():
        assert strict.post(move(job, "retry_now")).status_code == 403
        assert act(strict, "retry_now", job).status_code == 403
