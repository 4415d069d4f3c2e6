"""Our side of the CRM's HTTP interface: one call, with a time limit, and errors that say whether to try again."""

from __future__ import annotations

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

BUSY = (408, 425, 429)  # the 4xx that ask to come again


class CrmUnavailableError(Exception):
    """The CRM could not be reached, or had a problem of its own. Later may help."""


class CrmRefusedError(Exception):
    """The CRM says that the request is wrong. It will say so again."""


def put_customer(customer_id: int, data: dict[str, Any], *, idempotency_key: str) -> None:
    """Make the CRM's record of a customer equal to `data`; raises CrmUnavailableError or CrmRefusedError.

    PUT says "let it be so", so saying it twice is harmless. The key is for what the CRM does beside storing (mails to
    sales people, invoices): it is the same in every attempt of a job, so that the CRM does that once.
    """
    base = urlsplit(settings.CRM_URL)
    connect = HTTPSConnection if base.scheme == "https" else HTTPConnection
    # Always a time limit: without it a CRM that accepts and never answers would occupy a worker's thread until the
    # job's own limit ends it.
    connection = connect(base.netloc, timeout=settings.CRM_TIMEOUT)
    headers = {"Content-Type": "application/json", "Idempotency-Key": idempotency_key}
    try:
        connection.request("PUT", f"{base.path}customers/{customer_id}/", json.dumps(data), headers)
        response = connection.getresponse()
        said = response.read(500).decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        raise CrmUnavailableError(f"the CRM at {base.netloc} does not answer: {error!r}") from error
    finally:
        connection.close()
    if response.status >= 500 or response.status in BUSY:
        raise CrmUnavailableError(f"the CRM answered {response.status}: {said}")
    if not 200 <= response.status < 300:
        raise CrmRefusedError(f"the CRM answered {response.status}: {said}")
