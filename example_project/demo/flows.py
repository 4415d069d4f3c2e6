"""The five flows, started the way people start them: by requests to the site's views, here of Django's test client."""

from __future__ import annotations

import datetime as dt
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from example_project.accounts.jobs import send_welcome_mail
from example_project.accounts.models import WelcomeMail
from example_project.catalog.jobs import import_products
from example_project.catalog.models import PriceList
from example_project.crm.service import FAILURES
from example_project.customers import reports
from example_project.customers.jobs import send_daily_digests, send_digest_mail, sync_customer, write_weekly_report
from example_project.customers.models import Customer, Digest, DigestMail, WeeklyReport
from example_project.demo import seeds
from example_project.demo.processes import DemoError
from pgjobs.models import Attempt, Job
from pgjobs.signals import job_enqueued


@dataclass(frozen=True, slots=True)
class Step:
    """A job that a flow enqueued, or the many that this job enqueues (`many`), and how they should end."""

    flow: str
    kind: str
    job_id: int
    many: int | None = None
    status: str = "done"
    attempts: int | None = None  # None: any
    doubt: Callable[[], str] = lambda: ""  # what else is not as it should be; '' if all is well


class Browser:
    """A logged-in user's browser; each request answers the jobs that it enqueued."""

    def __init__(self, user: User) -> None:
        self._client = Client(SERVER_NAME="127.0.0.1")
        self._client.force_login(user)

    def post(self, url: str, data: dict[str, Any]) -> list[int]:
        """Send a form; the ids of its jobs. Raises DemoError unless the site took it, which a redirect says."""
        jobs: list[int] = []

        def hear(sender: str, job: Any, **kwargs: Any) -> None:
            jobs.append(job.id)

        job_enqueued.connect(hear)
        try:
            response = self._client.post(url, data)
        finally:
            job_enqueued.disconnect(hear)
        if response.status_code != 302:
            form = response.context and response.context.get("form")
            raise DemoError(
                f"The site did not take the form at {url}: {response.status_code} {form and form.errors.as_text()}"
            )
        return jobs

    def close(self) -> None:
        self._client.logout()  # or each demo would leave a session behind


def start(browser: Browser) -> Iterator[Step]:
    """Make the flows happen, one after the other; a Step for each kind of job that comes of it."""
    for flow in (welcome_mail, csv_import, crm_sync, weekly_report, daily_digest):
        yield from flow(browser)


def welcome_mail(browser: Browser) -> Iterator[Step]:
    name, password = f"buyer-{secrets.token_hex(4)}", secrets.token_urlsafe(12)
    form = {"username": name, "email": f"{name}@customers.example", "password1": password, "password2": password}
    [job] = browser.post(reverse("accounts:register"), form)
    was_sent = WelcomeMail.objects.filter(user__username=name).exists
    yield Step("Welcome mail", kind(send_welcome_mail), job, doubt=lambda: "" if was_sent() else "no mail was sent")


def csv_import(browser: Browser) -> Iterator[Step]:
    file = SimpleUploadedFile("demo.csv", seeds.price_list(), "text/csv")
    [job] = browser.post(reverse("catalog:price_lists"), {"file": file})

    def doubt() -> str:
        found = PriceList.objects.get(job_id=job)
        lines = [row["line"] for row in found.bad_rows]
        right = found.imported == seeds.ROWS - len(seeds.BAD_ROWS) and lines == [n + 1 for n in seeds.BAD_ROWS]
        return "" if right else f"{found.imported} rows imported, bad lines {lines}"

    yield Step("CSV import", kind(import_products), job, doubt=doubt)


def crm_sync(browser: Browser) -> Iterator[Step]:
    for name, ends in (("Utrecht Lamps", "done"), ("O'Hara & Sons", "dead")):
        customer = Customer.objects.create(name=name, email="office@customers.example", wants_digest=False)
        form = {"name": name, "email": customer.email, "city": "Utrecht"}
        [job] = browser.post(customer.get_absolute_url(), form)
        if ends == "done":
            yield Step("CRM, flaky", kind(sync_customer), job, attempts=FAILURES + 1)
        else:
            yield Step(
                "CRM, hopeless",
                kind(sync_customer),
                job,
                status="dead",
                attempts=settings.CRM_MAX_ATTEMPTS,
                doubt=partial(missing_tracebacks, job),
            )


def missing_tracebacks(job_id: int) -> str:
    """Each failed attempt has to have its traceback in the history."""
    kept = sum(
        "Traceback" in text for text in Attempt.objects.filter(job_id=job_id).values_list("traceback", flat=True)
    )
    return "" if kept == settings.CRM_MAX_ATTEMPTS else f"{kept} attempts with a traceback"


def weekly_report(browser: Browser) -> Iterator[Step]:
    week = reports.this_week()
    began = timezone.now()
    jobs = browser.post(reverse("customers:write_report"), {"week": week})
    # An interrupted demo may have left one that waits: its key is taken, and it does our work.
    job = (
        jobs[0]
        if jobs
        else Job.objects.filter(kind=kind(write_weekly_report), dedupe_key=f"week-{week}").latest("pk").pk
    )

    def doubt() -> str:
        row = WeeklyReport.objects.filter(week=week, written_at__gte=began).exists()
        return "" if row and reports.file_of(week).exists() else "no row, or no file"

    yield Step("Weekly report", kind(write_weekly_report), job, doubt=doubt)


def daily_digest(browser: Browser) -> Iterator[Step]:
    """The last, for its 2,000 mails keep the worker busy. The day is the latest without a digest: each demo its own."""
    many = seeds.readers()
    day = timezone.localdate()
    while Digest.objects.filter(day=day).exists():
        day -= dt.timedelta(days=1)
    [job] = browser.post(reverse("customers:send_digest"), {"day": day.isoformat()})

    def doubt() -> str:
        sent = DigestMail.objects.filter(digest__day=day, sent_at__isnull=False).count()
        return "" if sent == many else f"{sent:,} mails sent"

    yield Step("Daily digest", kind(send_daily_digests), job)
    yield Step("", kind(send_digest_mail), job, many=many, doubt=doubt)


def kind(job: Any) -> str:
    """The kind of a handler."""
    return str(job.handler.kind)
