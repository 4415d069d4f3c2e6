"""Pages of the back office: customers, the digest, the weekly report. Each change enqueues what follows from it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin.views.decorators import staff_member_required
from django.db import transaction
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST

from example_project.customers.forms import CustomerForm, DigestForm, ReportForm
from example_project.customers.jobs import digest_later, sync_later, write_weekly_report
from example_project.customers.models import Customer, Digest, WeeklyReport
from example_project.customers.reports import this_week


@staff_member_required
def customers(request: HttpRequest) -> HttpResponse:
    """The latest customers, and whether the CRM knows of them."""
    context = {"customers": Customer.objects.all()[:50], "count": Customer.objects.count()}
    return render(request, "customers/customers.html", context)


@staff_member_required
def edit(request: HttpRequest, pk: int | None = None) -> HttpResponse:
    """Save a customer, and enqueue its sync in the same transaction: neither comes without the other."""
    form = CustomerForm(request.POST or None, instance=get_object_or_404(Customer, pk=pk) if pk else None)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            customer = form.save()
            sync_later(customer)
        messages.success(request, f"{customer} is saved; the CRM will hear of it.")
        return redirect("customers:list")
    return render(request, "customers/edit.html", {"form": form})


@staff_member_required
def paperwork(request: HttpRequest) -> HttpResponse:
    """The digests and reports so far, and buttons for the next."""
    context: dict[str, Any] = {
        "digests": Digest.objects.annotate(sent=Count("mails__sent_at")).order_by("-day")[:10],
        "reports": WeeklyReport.objects.all()[:10],
        "digest_form": DigestForm(initial={"day": timezone.localdate()}),
        "report_form": ReportForm(initial={"week": this_week()}),
    }
    return render(request, "customers/paperwork.html", context)


@staff_member_required
@require_POST
def send_digest(request: HttpRequest) -> HttpResponse:
    """Start a day's digest. A second press finds the digest and the key taken, and starts nothing."""
    form = DigestForm(request.POST)
    if form.is_valid():
        with transaction.atomic():
            digest = digest_later(form.cleaned_data["day"])
        messages.success(request, f"The {digest} is on its way.")
    else:
        messages.error(request, f"No digest: {form.errors.as_text()}")
    return redirect("customers:paperwork")


@staff_member_required
@require_POST
def write_report(request: HttpRequest) -> HttpResponse:
    """Have a week counted, at once or once more. The key keeps two impatient presses from being two jobs."""
    form = ReportForm(request.POST)
    if form.is_valid():
        week = form.cleaned_data["week"]
        write_weekly_report.using(dedupe_key=f"week-{week}", on_conflict="rerun").enqueue(week=week)
        messages.success(request, f"The report of {week} is being written.")
    else:
        messages.error(request, f"No report: {form.errors.as_text()}")
    return redirect("customers:paperwork")
