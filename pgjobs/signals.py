"""Signals about jobs. Sent robustly: a receiver that raises is logged and changes nothing.

The sender is the job's kind (a str). ``job`` is an object with at least ``id``, ``kind`` and ``queue``; ``attempt`` is
the number of the attempt, ``exc_info`` the exception where there is one (else None).

``job_enqueued`` is sent in the caller's transaction, which may still roll back. The others are sent by the worker:
``job_started`` before the handler runs, the rest after the fenced write, and never for an attempt whose lease was lost.
"""

from __future__ import annotations

import logging
from typing import Any

from django.dispatch import Signal

logger = logging.getLogger("pgjobs")

job_enqueued = Signal()
job_started = Signal()
job_finished = Signal()
job_retried = Signal()
job_dead = Signal()


def send(signal: Signal, sender: str, **named: Any) -> None:
    """Send to every receiver; one that raises, even a BaseException, is logged and the rest still receive."""
    if not signal.receivers:
        return
    try:
        signal.send_robust(sender=sender, **named)  # Django logs what a receiver raises
    except BaseException:  # send_robust lets SystemExit and the like through; a receiver must not end a worker
        logger.exception("a receiver of a pgjobs signal raised; the job is not affected")
