"""Customers: the CRM sync, the digest, the weekly report."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.db import transaction
from django.test import Client
from django.urls import reverse

from example_project.crm.service import FAILURES, FlakyCrm
from example_project.customers import reports
from example_project.customers.crm_client import CrmRefusedError, CrmUnavailableError, put_customer
from example_project.customers.jobs import (
    send_daily_digests,
    send_digest_mail,
    start_daily_digest,
    sync_customer,
    sync_later,
    write_weekly_report,
)
from example_project.customers.models import Customer, Digest, DigestMail, WeeklyReport
from pgjobs import JobContext
from pgjobs.models import Job
from tests.example.races import run_twice_at_once

FORM = {"name": "Utrecht Lamps", "email": "office@example.com", "city": "Utrecht", "wants_digest": "on"}


def customer(name: str = "Utrecht Lamps", **more: object) -> Customer:
    return Customer.objects.create(name=name, email="office@example.com", **more)


def digest_of(*readers: Customer) -> Digest:
    """A digest whose mails are enqueued."""
    digest = Digest.objects.create(day=dt.date(2026, 11, 30))
    assert send_daily_digests(digest_id=digest.pk) == {"mails": len(readers)}
    return digest


def let_it_fail(crm: FlakyCrm, ctx: JobContext, one: Customer) -> None:
    """Fail as often as the CRM fails for a new customer."""
    for _ in range(FAILURES):
        with pytest.raises(CrmUnavailableError, match="503: down for maintenance"):
            sync_customer(ctx, customer_id=one.pk)
    assert one.pk not in crm.customers


@pytest.mark.django_db
def test_the_third_attempt_of_a_sync_succeeds(crm: FlakyCrm, ctx: JobContext) -> None:
    one = customer(city="Utrecht")
    let_it_fail(crm, ctx, one)
    assert sync_customer(ctx, customer_id=one.pk) == "synced"
    assert crm.customers[one.pk] == {"name": "Utrecht Lamps", "email": "office@example.com", "city": "Utrecht"}
    one.refresh_from_db()
    assert one.crm_synced_at is not None


@pytest.mark.django_db
def test_run_twice_a_sync_changes_the_crm_once(crm: FlakyCrm, ctx: JobContext) -> None:
    one = customer()
    let_it_fail(crm, ctx, one)
    assert [sync_customer(ctx, customer_id=one.pk) for _ in range(2)] == ["synced", "synced"]
    assert crm.changes[one.pk] == 1


@pytest.mark.django_db
def test_an_edit_between_two_attempts_of_a_job_reaches_the_crm(crm: FlakyCrm, ctx: JobContext) -> None:
    """As when the answer to the first got lost: with the job's id alone as the key, the CRM would ignore the edit."""
    one = customer()
    let_it_fail(crm, ctx, one)
    sync_customer(ctx, customer_id=one.pk)
    one.name = "Utrecht Lights"
    one.save()
    sync_customer(ctx, customer_id=one.pk)
    assert crm.customers[one.pk]["name"] == "Utrecht Lights"


@pytest.mark.django_db
def test_an_apostrophe_is_too_much_for_the_crm(crm: FlakyCrm, ctx: JobContext) -> None:
    one = customer("O'Hara & Sons")
    for _ in range(5):
        with pytest.raises(CrmUnavailableError, match="500: syntax error at or near 'Hara & Sons'"):
            sync_customer(ctx, customer_id=one.pk)


@pytest.mark.django_db
def test_a_customer_who_is_gone_needs_no_sync(ctx: JobContext) -> None:
    assert sync_customer(ctx, customer_id=4711) == "the customer is gone"


def test_what_the_crm_refuses_is_told_apart(crm: FlakyCrm, settings: Any) -> None:
    with pytest.raises(CrmRefusedError, match="400"):
        put_customer(1, {}, idempotency_key="k")
    settings.CRM_URL = settings.CRM_URL.replace("/crm/", "/other/")
    with pytest.raises(CrmRefusedError, match="404"):
        put_customer(1, {"name": "x"}, idempotency_key="k")


def test_a_crm_that_is_not_there_is_unavailable(settings: Any) -> None:
    with pytest.raises(CrmUnavailableError, match=r"127\.0\.0\.1:1 does not answer: ConnectionRefused"):
        put_customer(1, {"name": "x"}, idempotency_key="k")


@pytest.mark.django_db
def test_saving_a_customer_enqueues_one_sync_however_often(admin_client: Client) -> None:
    admin_client.post(reverse("customers:new"), FORM)
    one = Customer.objects.get()
    page = admin_client.post(one.get_absolute_url(), FORM | {"city": "Delft"}, follow=True).content.decode()
    assert "Utrecht Lamps is saved" in page
    job = Job.objects.get()
    assert (job.kind, job.payload, job.dedupe_key) == ("sync_customer", {"customer_id": one.pk}, f"customer-{one.pk}")
    assert job.max_attempts == 4


@pytest.mark.django_db
def test_a_save_in_the_admin_enqueues_the_sync_too(admin_client: Client) -> None:
    admin_client.post(reverse("admin:customers_customer_add"), FORM)
    assert Job.objects.get().dedupe_key == f"customer-{Customer.objects.get().pk}"


@pytest.mark.django_db
def test_without_the_change_there_is_no_sync() -> None:
    with pytest.raises(RuntimeError), transaction.atomic():  # noqa: PT012 - the block is what is tested
        sync_later(customer())
        assert Job.objects.exists()
        raise RuntimeError
    assert not Customer.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_a_digest_is_a_mail_for_each_who_wants_it() -> None:
    readers = [customer(), customer()]
    customer(wants_digest=False)
    digest = digest_of(*readers)
    jobs = Job.objects.order_by("payload__mail_id")
    assert [job.dedupe_key for job in jobs] == [f"digest-2026-11-30-{reader.pk}" for reader in readers]
    assert {(job.kind, job.queue, job.priority) for job in jobs} == {("send_digest_mail", "mail", -10)}
    for job in jobs:
        assert send_digest_mail(**job.payload) == "sent"
        assert send_digest_mail(**job.payload) == "was sent before"
    assert [message.body for message in mail.outbox] == [
        "Hello Utrecht Lamps,\n\n0 products were new or changed.\n\nThe shop\n"
    ] * 2
    assert digest.mails.filter(sent_at=None).count() == 0


@pytest.mark.django_db
def test_a_digest_that_is_started_twice_enqueues_what_is_not_sent() -> None:
    digest = digest_of(customer(), customer(), customer())
    first, *_ = Job.objects.order_by("pk")
    send_digest_mail(**first.payload)
    assert send_daily_digests(digest_id=digest.pk) == {"mails": 2}
    assert Job.objects.count() == 3  # the keys of the two that wait are taken


@pytest.mark.django_db(transaction=True)
def test_a_digest_mail_that_runs_twice_at_the_same_time_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    digest_of(customer())
    [payload] = Job.objects.values_list("payload", flat=True)
    assert run_twice_at_once(monkeypatch, lambda: send_digest_mail(**payload)) == ["sent", "was sent before"]
    assert len(mail.outbox) == 1


@pytest.mark.django_db
def test_a_digest_mail_that_could_not_be_sent_is_not_remembered_as_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: EmailMessage) -> None:
        raise ConnectionRefusedError

    mail_id = digest_of(customer()).mails.get().pk
    with monkeypatch.context() as patch:
        patch.setattr(EmailMessage, "send", refuse)
        with pytest.raises(ConnectionRefusedError):
            send_digest_mail(mail_id=mail_id)
    assert DigestMail.objects.get().sent_at is None
    assert send_digest_mail(mail_id=mail_id) == "sent"


@pytest.mark.django_db
def test_who_said_no_or_left_gets_no_digest() -> None:
    one = customer()
    mail_id = digest_of(one).mails.get().pk
    Customer.objects.update(wants_digest=False)
    assert send_digest_mail(mail_id=mail_id) == "not wanted any more"
    one.delete()
    assert send_digest_mail(mail_id=mail_id) == "not wanted any more"
    assert not mail.outbox


def at(ctx: JobContext, scheduled_for: str) -> JobContext:
    """The context of a scheduled job."""
    return dataclasses.replace(ctx, scheduled_for=dt.datetime.fromisoformat(scheduled_for))


@pytest.mark.django_db
def test_the_scheduled_digest_is_that_of_its_nominal_day(ctx: JobContext) -> None:
    """However late it runs, and however often."""
    late = at(ctx, "2026-11-30T07:00Z")
    assert start_daily_digest(late) == start_daily_digest(late) == "digest of 2026-11-30"
    job = Job.objects.get()
    assert (job.kind, job.dedupe_key) == ("send_daily_digests", "digest-2026-11-30")
    assert job.payload == {"digest_id": Digest.objects.get(day=dt.date(2026, 11, 30)).pk}


@pytest.mark.parametrize(
    ("scheduled_for", "week"),
    [("2026-11-30T06:00Z", "2026-W48"), ("2027-01-04T06:00Z", "2026-W53"), ("2027-01-11T06:00Z", "2027-W01")],
)
def test_the_scheduled_report_is_that_of_the_week_before(scheduled_for: str, week: str) -> None:
    assert reports.week_before(dt.datetime.fromisoformat(scheduled_for)) == {"week": week}


def test_what_recurs() -> None:
    declared = [one for job in (start_daily_digest, write_weekly_report) for one in job.handler.schedules]
    assert [(one.name, one.cron, one.timezone) for one in declared] == [
        ("daily digest", "0 7 * * *", "UTC"),
        ("weekly report", "0 6 * * mon", "UTC"),
    ]


@pytest.mark.django_db
def test_the_digest_button_starts_a_day_once(admin_client: Client) -> None:
    for _ in range(2):
        admin_client.post(reverse("customers:send_digest"), {"day": "2026-11-30"})
    assert Job.objects.get().payload == {"digest_id": Digest.objects.get().pk}
    page = admin_client.post(reverse("customers:send_digest"), {"day": "never"}, follow=True).content.decode()
    assert "No digest" in page


@pytest.mark.parametrize(
    ("week", "start", "end"),
    [
        ("2026-W01", dt.datetime(2025, 12, 29, tzinfo=dt.UTC), dt.datetime(2026, 1, 5, tzinfo=dt.UTC)),
        ("2026-W53", dt.datetime(2026, 12, 28, tzinfo=dt.UTC), dt.datetime(2027, 1, 4, tzinfo=dt.UTC)),
    ],
)
def test_a_week_is_that_of_iso(week: str, start: dt.datetime, end: dt.datetime) -> None:
    assert reports.bounds(week) == (start, end)


@pytest.mark.parametrize("week", ["2026-W54", "2026-W00", "2025-W53", "2026-49", "../etc"])
def test_other_weeks_are_refused(week: str) -> None:
    with pytest.raises(ValueError, match=r"week|Week"):
        reports.bounds(week)


@pytest.mark.django_db
def test_the_report_of_a_week_is_one_row_and_one_file(directories: Path) -> None:
    week = reports.this_week()
    customer()
    assert write_weekly_report(week=week)["new_customers"] == 1
    customer()
    assert write_weekly_report(week=week)["new_customers"] == 2
    assert WeeklyReport.objects.get().new_customers == 2
    assert [path.name for path in (directories / "reports").iterdir()] == [f"{week}.csv"]
    heading, figures = reports.file_of(week).read_text().splitlines()
    assert dict(zip(heading.split(","), figures.split(","), strict=True)) == {
        "week": week,
        "new_users": "0",
        "new_customers": "2",
        "synced_customers": "0",
        "digest_mails": "0",
        "price_lists": "0",
        "products_changed": "0",
    }


@pytest.mark.django_db
def test_the_report_button(admin_client: Client) -> None:
    for week in ("2026-W49", "2026-W49", "2026-W60"):
        page = admin_client.post(reverse("customers:write_report"), {"week": week}, follow=True).content.decode()
    assert "No report" in page
    assert Job.objects.get().payload == {"week": "2026-W49"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "name", ["home", "accounts:register", "catalog:price_lists", "customers:list", "customers:new"]
)
def test_the_pages_are_there(admin_client: Client, name: str) -> None:
    assert admin_client.get(reverse(name)).status_code == 200
