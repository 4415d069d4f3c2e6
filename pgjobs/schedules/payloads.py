"""Payloads that the user's code makes for a tick. It may be slow, and it may hang: only its own schedule waits for it."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connections

from ..api.recurring import Schedule

LONGEST = 30.0
"""Seconds that a callable may take."""


@dataclass(slots=True)
class Call:
    """One call, in a thread of its own."""

    key: tuple[int, dt.datetime]
    began: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    payload: Mapping[str, Any] | None = None
    error: BaseException | None = None


class Payloads:
    """The calls that are under way, one a schedule at most."""

    def __init__(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        self._calls: dict[int, Call] = {}

    def get(self, schedule_id: int, key: tuple[int, dt.datetime], declared: Schedule) -> Mapping[str, Any] | None:
        """The payload for ``key`` (revision and nominal time), or None while it is made; ``ready`` is called when it is.

        Raises what the callable raised, and TimeoutError when it takes too long. A call that never returns keeps its
        schedule from being called again, and nothing else.
        """
        call = self._calls.get(schedule_id)
        if call is None or (call.done.is_set() and call.key != key):
            call = Call(key)
            name = f"pgjobs-payload-{schedule_id}"
            threading.Thread(target=self._run, args=(call, declared, key[1]), name=name, daemon=True).start()
            self._calls[schedule_id] = call  # not one whose thread could not start: it would never be done
        if call.done.is_set():
            if call.error is not None:
                if isinstance(call.error, Exception):
                    raise call.error
                raise RuntimeError(f"schedule_payload raised {call.error!r}") from call.error
            return call.payload
        if (seconds := time.monotonic() - call.began) > LONGEST:
            raise TimeoutError(f"schedule_payload has not returned for {seconds:.0f} s; the limit is {LONGEST:g} s")
        return None

    def forget(self, schedule_id: int) -> None:
        """Its payload was of no use: the next try calls it anew. One that is still under way goes on."""
        call = self._calls.get(schedule_id)
        if call is not None and call.done.is_set():
            del self._calls[schedule_id]

    def _run(self, call: Call, declared: Schedule, scheduled_for: dt.datetime) -> None:
        try:
            call.payload = declared.make_payload(scheduled_for)
        except BaseException as e:  # noqa: BLE001 - whatever it raises is that schedule's error
            call.error = e
        finally:
            call.done.set()
            self._ready()
            connections.close_all()  # those of this thread, which ends
