"""Browsers of people with different permissions, and what they ask of the admin."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse

LIST = "/admin/pgjobs/job/"


def page(job: Any) -> str:
    """The address of a job's page."""
    return reverse("admin:pgjobs_job_change", args=(getattr(job, "pk", job),))


def move(job: Any, name: str) -> str:
    """The address of a button."""
    return reverse("admin:pgjobs_job_move", args=(getattr(job, "pk", job), name))


def act(client: Client, name: str, *jobs: Any, across: bool = False, query: str = "") -> Any:
    """Run an action of the list on jobs, or on everything that the query finds."""
    ids = [str(getattr(job, "pk", job)) for job in jobs] or ["0"]
    data = {"action": name, "index": "0", "select_across": "1" if across else "0", "_selected_action": ids}
    return client.post(LIST + query, data)


def told(response: Any) -> str:
    """The messages of a response."""
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def listed(response: Any) -> list[int]:
    """The ids of a list, in its order."""
    return [job.pk for job in response.context["cl"].result_list]


@pytest.fixture
def ann(db: None) -> Client:
    """A superuser's browser."""
    client = Client()
    client.force_login(User.objects.create_superuser("ann", "ann@example.com", "pw"))
    return client


@pytest.fixture
def staff(db: None) -> Callable[..., Client]:
    """The browser of somebody with these permissions of jobs."""

    def make(*codenames: str) -> Client:
        user = User.objects.create_user("-".join(["bo", *codenames]), password="pw", is_staff=True)
        found = Permission.objects.filter(codename__in=codenames, content_type__app_label="pgjobs")
        assert len(found) == len(codenames)
        user.user_permissions.set(found)
        client = Client()
        client.force_login(user)
        return client

    return make
