"""The CRM as a part of the site, so that `runserver` and `run_jobs` are all that one needs to try it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_http_methods

from example_project.crm.service import crm


@csrf_exempt  # programs call it, not forms
@require_http_methods(["PUT"])
def customer(request: HttpRequest, pk: int) -> HttpResponse:
    status, text = crm.put(pk, request.body, request.headers.get("Idempotency-Key"))
    return HttpResponse(text, status=status, content_type="text/plain")
