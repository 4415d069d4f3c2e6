"""How the CRM behaves, whatever serves it: the site's view, or the demo's small server."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

FAILURES = 2
"""How often it fails for each customer before it works."""


class FlakyCrm:
    """A CRM that is down now and then, and that has a bug of its own. It lives as long as its process.

    * For each customer the first two requests get a 503.
    * A name with an apostrophe always gets a 500: their SQL, presumably. No retry of ours will mend it.
    * An `Idempotency-Key` that it knows gets the first answer again, and nothing is done twice.
    """

    def __init__(self) -> None:
        self.customers: dict[int, dict[str, Any]] = {}
        self.changes: Counter[int] = Counter()  # how often a customer was really changed
        self._requests: Counter[int] = Counter()
        self._answered: dict[str, tuple[int, str]] = {}
        self._lock = threading.Lock()

    def put(self, customer_id: int, body: bytes, idempotency_key: str | None) -> tuple[int, str]:
        """Status and text of the answer to a PUT of a customer."""
        try:
            data = json.loads(body)
            name = str(data["name"])
        except (ValueError, TypeError, KeyError):
            return 400, "a customer is a JSON object with a name"
        with self._lock:
            if idempotency_key in self._answered:
                return self._answered[idempotency_key]
            if "'" in name:
                return 500, f"syntax error at or near {name.split(chr(39))[1]!r}"
            self._requests[customer_id] += 1
            if self._requests[customer_id] <= FAILURES:
                return 503, "down for maintenance, please come back later"
            self.customers[customer_id] = data
            self.changes[customer_id] += 1
            answer = 200, "stored"
            if idempotency_key is not None:
                self._answered[idempotency_key] = answer
            return answer


crm = FlakyCrm()
"""The one of this process."""
