"""Background work for customers: the CRM, the daily digest, the weekly report.

Two of them recur: the digest every morning, the report every Monday. Their schedules stand beside the handlers, appear in
the admin when a worker starts, and can be paused there.

Every handler here may run twice for the same job, and each says in its docstring why that does no harm.
"""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.utils import timezone

from example_project.catalog.models import Product
from example_project.customers import reports
from example_project.customers.crm_client import CrmRefusedError, put_customer
from example_project.customers.models import Customer, Digest, DigestMail, WeeklyReport
from pgjobs import Exponential, JobContext, enqueue_many, job


@job(
    queue="crm",
    max_attempts=settings.CRM_MAX_ATTEMPTS,
    backoff=Exponential(base=settings.CRM_RETRY_BASE, cap=3600, jitter=settings.CRM_RETRY_BASE),
    discard_on=(CrmRefusedError,),  # a request that is wrong stays wrong: a dead letter at once, not hours later
)
def sync_customer(ctx: JobContext, customer_id: int) -> str:
    """Bring the CRM's record of a customer up to date.

    Idempotent: it sends the *state*, not the change. The payload is an id, and the row is read now, so that a job that
    waited for the CRM for an hour sends what is true now, and one that runs twice sends the same twice.

    The idempotency key is the job's id, which all its attempts share, and the version of the row. The id alone would be
    a trap: the CRM may have stored the first attempt although its answer got lost; if the customer was edited before
    the second, the CRM would take that for a repetition, and ignore the edit.

    CrmUnavailableError is simply not caught: what is raised is recorded and tried again.
    """
    customer = Customer.objects.filter(pk=customer_id).first()
    if customer is None:
        return "the customer is gone"
    data = {"name": customer.name, "email": customer.email, "city": customer.city}
    put_customer(customer.pk, data, idempotency_key=f"{ctx.id}-{customer.updated_at.timestamp()}")
    Customer.objects.filter(pk=customer_id).update(crm_synced_at=timezone.now())  # not save(): others may edit the row
    return "synced"


def sync_later(customer: Customer) -> None:
    """Enqueue the sync of a customer that is being saved; call it in the transaction that saves.

    The key makes ten quick changes one job. `on_conflict="rerun"` is for a change that comes while the sync *runs*:
    that run may have read the old row, so one more follows it. With "keep" the CRM would never hear of that change.
    """
    sync_customer.using(dedupe_key=f"customer-{customer.pk}", on_conflict="rerun").enqueue(customer_id=customer.pk)


def digest_later(day: dt.date) -> Digest:
    """Enqueue the digest of a day; call it in a transaction. While one of that day is under way, nothing is started."""
    digest, _ = Digest.objects.get_or_create(day=day)
    send_daily_digests.using(dedupe_key=f"digest-{day}").enqueue(digest_id=digest.pk)
    return digest


@job(
    queue="mail",
    atomic=True,
    cron="0 7 * * *",
    timezone=settings.TIME_ZONE,
    schedule_name="daily digest",
    max_lateness=dt.timedelta(hours=12),  # nobody wants this morning's mail at night
)
def start_daily_digest(ctx: JobContext) -> str:
    """Start the digest of the day that was due, which is not today's if this runs after midnight.

    Idempotent: the day is the key of the digest's row and of its job.
    """
    day = timezone.localdate(ctx.scheduled_for or timezone.now())
    return str(digest_later(day))


@job(queue="mail", atomic=True)
def send_daily_digests(digest_id: int) -> dict[str, int]:
    """Write a day's digest, and enqueue one mail for each customer who wants it.

    One job that sends 2,000 mails would start all over when the 1,999th fails; 2,000 jobs fail, wait and are retried
    each for itself, on as many workers as there are.

    `atomic=True`: the text, the mails' rows, their 2,000 jobs and this job's own *done* are one transaction. They come
    to be once or not at all, so the handler is idempotent for as long as it only writes to this database. The rest is
    for a digest that is started twice on purpose: rows that exist are kept, and only what was not sent is enqueued,
    under a key that a mail which still waits holds already.
    """
    digest = Digest.objects.get(pk=digest_id)
    digest.body = f"{Product.objects.filter(updated_at__date=digest.day).count():,} products were new or changed."
    digest.save(update_fields=["body"])
    readers = Customer.objects.filter(wants_digest=True).order_by("pk").values_list("pk", flat=True)
    DigestMail.objects.bulk_create(
        (DigestMail(digest=digest, customer_id=reader) for reader in readers), ignore_conflicts=True
    )
    unsent = digest.mails.filter(sent_at=None).order_by("pk").values_list("pk", "customer_id")
    handles = enqueue_many(
        send_digest_mail.using(dedupe_key=f"digest-{digest.day}-{customer}").prepare(mail_id=mail)
        for mail, customer in unsent
    )
    return {"mails": len(handles)}


@job(queue="mail", priority=-10, max_attempts=8)  # bulk mail waits behind what somebody waits for
def send_digest_mail(mail_id: int) -> str:
    """Send one customer's copy of a digest, once.

    The second way to be idempotent, for an effect whose row exists already (the first is in `accounts.jobs`): lock the
    row, look whether it is done, do it, write that down. A second run at the same time waits for the lock, and then
    sees what the first has written. A failure rolls the note back with everything else.
    """
    with transaction.atomic():
        mails = DigestMail.objects.select_related("digest", "customer").select_for_update(of=("self",))
        mail = mails.filter(pk=mail_id).first()
        if mail is None or not mail.customer.wants_digest:  # gone, or said no while the job waited
            return "not wanted any more"
        if mail.sent_at is not None:
            return "was sent before"
        EmailMessage(
            subject=f"What is new on {mail.digest.day}",
            body=f"Hello {mail.customer.name},\n\n{mail.digest.body}\n\nThe shop\n",
            to=[mail.customer.email],
            headers={"Message-ID": f"<digest-{mail.digest.day}-{mail.customer_id}@shop.example>"},
        ).send()
        mail.sent_at = timezone.now()
        mail.save(update_fields=["sent_at"])
    return "sent"


@job(
    max_attempts=3,
    cron="0 6 * * mon",
    timezone=settings.TIME_ZONE,
    schedule_name="weekly report",
    schedule_payload=reports.week_before,  # called for each tick, in a worker
)
def write_weekly_report(week: str) -> dict[str, int]:
    """Count an ISO week ("2026-W49"), keep the figures as a row and as a file for the accountants' spreadsheet.

    Idempotent: both have the week as their key. A second run counts again and overwrites; the file is renamed into
    place whole, so that a reader never meets half of one.
    """
    figures = reports.count(*reports.bounds(week))
    WeeklyReport.objects.update_or_create(week=week, defaults=figures)
    reports.write_file(week, figures)
    return figures
