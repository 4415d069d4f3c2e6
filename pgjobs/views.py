"""One view: somebody who knows the secret asks for a schedule's job.

    GET or POST jobs/trigger/<schedule>/      Authorization: Bearer <PGJOBS["TRIGGER_SECRET"]>
        ?key=…, or the header Idempotency-Key: at most one job of this key until the schedule's next tick

Answers are JSON: 202 with the new job, 200 with that of an earlier call, 400 for a key that cannot be one, 401 without the
secret (and nothing is done or told), 404 for a name that no schedule has, 405 for other methods, 409 when its job cannot
be stored.
"""

from __future__ import annotations

import hmac
import logging

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.csrf import csrf_exempt

from .conf import get_settings
from .models import Schedule
from .schedules import run_now

logger = logging.getLogger("pgjobs")


@csrf_exempt  # there is no session or cookie that a foreign page could make use of
@transaction.non_atomic_requests  # a job is there when the answer says so, whatever comes after the view
def trigger(request: HttpRequest, schedule: str) -> HttpResponse:
    """Store a job of the schedule of this name, as *run now* in the admin does; the schedule is left alone."""
    if request.method not in ("GET", "POST"):
        return _answer(405, {"error": "use GET or POST"}, Allow="GET, POST")
    if not _authorized(request):
        return _answer(401, {"error": "a bearer secret is needed"}, **{"WWW-Authenticate": "Bearer"})
    found = (
        Schedule._default_manager.using(get_settings().DATABASE)
        .filter(name=schedule.replace("\0", "\ufffd"), retired_at__isnull=True)
        .first()
    )
    if found is None:
        return _answer(404, {"error": "no schedule has this name"})
    key = request.GET.get("key", request.headers.get("Idempotency-Key"))
    if key is not None and (not 1 <= len(key.encode(errors="replace")) <= 255 or "\0" in key):
        # An empty one is a variable that somebody forgot to set: without a key, each call would be a job.
        return _answer(400, {"error": "a key has 1 to 255 bytes, and no NUL"})
    try:
        ran = run_now(found, key=key)
    except ValueError as e:
        logger.error("schedule %s: its job could not be stored when its URL was called: %s", found.name, e)
        return _answer(409, {"schedule": found.name, "error": str(e)})
    logger.info("schedule %s: job %s %s", found.name, ran.job_id, "by its URL" if ran.created else "asked for again")
    return _answer(202 if ran.created else 200, {"schedule": found.name, "job": ran.job_id, "created": ran.created})


def _authorized(request: HttpRequest) -> bool:
    secret = get_settings().TRIGGER_SECRET
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if secret is None:
        logger.warning("a schedule's URL was called, but PGJOBS['TRIGGER_SECRET'] is not set: refused")
        return False
    # Bytes: compare_digest() raises for text beyond ASCII, which anybody could send.
    right = hmac.compare_digest(given.strip().encode(errors="replace"), secret.encode())
    return scheme.lower() == "bearer" and right


def _answer(status: int, body: dict[str, object], **headers: str) -> HttpResponse:
    return JsonResponse(body, status=status, headers={"Cache-Control": "no-store", **headers})
