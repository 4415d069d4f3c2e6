"""Handlers of one release and the next: which of them there are is said by TESTAPP_RELEASE (1 or 2; unset: none)."""

from __future__ import annotations

import os
from typing import Any

from pgjobs import job

RELEASE = os.environ.get("TESTAPP_RELEASE")

if RELEASE == "1":

    @job
    def invoice(order_id: int) -> str:
        """As it was first."""
        return f"release 1: {order_id}"


if RELEASE == "2":

    def with_currency(old: dict[str, Any]) -> dict[str, Any]:
        """Jobs of release 1 did not know of currencies."""
        return {**old, "currency": "EUR"}

    @job(aliases=("invoice",), upgrade=with_currency)
    def mail_invoice(order_id: int, currency: str) -> str:
        """Renamed, and with one more argument."""
        return f"release 2: {order_id} {currency}"

    @job
    def receipt(order_id: int) -> str:
        """A new kind."""
        return f"release 2: receipt {order_id}"
