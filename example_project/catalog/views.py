"""Price lists: upload one, and see how far the imports are."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.admin.views.decorators import staff_member_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from example_project.catalog.forms import PriceListForm
from example_project.catalog.jobs import import_products
from example_project.catalog.models import PriceList, Product
from pgjobs.models import Job


@staff_member_required
def price_lists(request: HttpRequest) -> HttpResponse:
    """Take an upload: store the file, answer at once, and leave the 20,000 rows to a worker.

    The payload is the id of the row that names the file, never its contents: payloads are for what identifies the
    work. A file is not part of the transaction; should that roll back, an orphan stays on the disk, and no job that
    misses one.
    """
    form = PriceListForm(request.POST or None, request.FILES or None)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            price_list = form.save()
            price_list.job_id = import_products.enqueue(price_list_id=price_list.pk).id
            price_list.save(update_fields=["job_id"])
        messages.success(request, "Thank you; the import runs in the background.")
        return redirect("catalog:price_lists")
    latest = list(PriceList.objects.all()[:20])
    jobs = Job.objects.in_bulk([one.job_id for one in latest if one.job_id])
    context = {
        "form": form,
        "price_lists": [(one, jobs.get(one.job_id or 0)) for one in latest],
        "products": Product.objects.count(),
    }
    return render(request, "catalog/price_lists.html", context)
