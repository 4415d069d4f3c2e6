"""Two runs of the same handler at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.core.mail import EmailMessage
from django.db import connection

from tests.waiting import wait_until


def run_twice_at_once(monkeypatch: pytest.MonkeyPatch, run: Callable[[], str]) -> list[str]:
    """Run it; while it sends its mail start a second run, and go on when that one waits for a lock. What both answered."""
    answers: list[str] = []

    def run_again() -> None:
        answers.append(run())
        connection.close()

    second = threading.Thread(target=run_again)
    send = EmailMessage.send

    def send_while_another_comes(self: EmailMessage, *args: Any, **kwargs: Any) -> int:
        monkeypatch.setattr(EmailMessage, "send", send)
        second.start()
        wait_until(is_somebody_waiting, "the second run waits for the first")
        return send(self, *args, **kwargs)

    monkeypatch.setattr(EmailMessage, "send", send_while_another_comes)
    first = run()
    second.join()
    return [first, *answers]


def is_somebody_waiting() -> bool:
    """Whether another backend waits for a lock of ours."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT 1 FROM pg_locks WHERE NOT granted AND %s = ANY(pg_blocking_pids(pid))",
            [connection.connection.info.backend_pid],
        )
        return cursor.fetchone() is not None
