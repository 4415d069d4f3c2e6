"""Registration and its welcome mail."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.core.mail import EmailMessage
from django.test import Client
from django.urls import reverse

from example_project.accounts import views
from example_project.accounts.jobs import send_welcome_mail
from example_project.accounts.models import WelcomeMail
from pgjobs.models import Job
from tests.example.races import run_twice_at_once

FORM = {
    "username": "ada",
    "email": "ada@example.com",
    "password1": "a-long-one-91",
    "password2": "a-long-one-91",
}


@pytest.mark.django_db
def test_registering_stores_the_user_and_the_job(client: Client) -> None:
    response = client.post(reverse("accounts:register"), FORM, follow=True)
    assert "A mail is on its way to ada@example.com" in response.content.decode()
    user = User.objects.get(username="ada")
    assert [(job.kind, job.payload, job.status) for job in Job.objects.all()] == [
        ("send_welcome_mail", {"user_id": user.pk}, "pending")
    ]


@pytest.mark.django_db
def test_when_the_transaction_rolls_back_there_is_neither(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    class ThenBreaks:
        def enqueue(self, **payload: Any) -> None:
            send_welcome_mail.enqueue(**payload)
            assert Job.objects.exists()
            raise RuntimeError("the lights went out")

    monkeypatch.setattr(views, "send_welcome_mail", ThenBreaks())
    with pytest.raises(RuntimeError, match="lights"):
        client.post(reverse("accounts:register"), FORM)
    assert not User.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_a_form_that_is_wrong_stores_nothing(client: Client) -> None:
    response = client.post(reverse("accounts:register"), FORM | {"email": "nobody"})
    assert "valid email address" in response.content.decode()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_run_twice_it_sends_once() -> None:
    user = User.objects.create_user("ada", "ada@example.com")
    assert send_welcome_mail(user_id=user.pk) == "sent"
    assert send_welcome_mail(user_id=user.pk) == "was sent before"
    [message] = mail.outbox
    assert message.to == ["ada@example.com"]
    assert "Hello ada," in message.body
    assert message.extra_headers["Message-ID"] == f"<welcome-{user.pk}@shop.example>"


@pytest.mark.django_db(transaction=True)
def test_run_twice_at_the_same_time_it_sends_once(monkeypatch: pytest.MonkeyPatch) -> None:
    user = User.objects.create_user("ada", "ada@example.com")
    assert run_twice_at_once(monkeypatch, lambda: send_welcome_mail(user_id=user.pk)) == ["sent", "was sent before"]
    assert len(mail.outbox) == 1


@pytest.mark.django_db
def test_a_mail_that_could_not_be_sent_is_not_remembered_as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: EmailMessage) -> None:
        raise ConnectionRefusedError

    user = User.objects.create_user("ada", "ada@example.com")
    with monkeypatch.context() as patch:
        patch.setattr(EmailMessage, "send", refuse)
        with pytest.raises(ConnectionRefusedError):
            send_welcome_mail(user_id=user.pk)
    assert not WelcomeMail.objects.exists()
    assert send_welcome_mail(user_id=user.pk) == "sent"


@pytest.mark.django_db
def test_nobody_is_alarmed_by_an_account_that_is_gone() -> None:
    assert send_welcome_mail(user_id=4711) == "the account is gone"
    assert not mail.outbox
