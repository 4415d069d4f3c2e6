"""Threads that run handlers.

One job is a straight line: start it, fit the payload, call the handler, turn what came of it into exactly one outcome,
clean up, hand the outcome on. Nothing that a handler does may reach the thread's next job.
"""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from django.db import connections, transaction

from .. import store
from ..api.context import current_id, restored
from ..api.registry import Handler
from . import capture, forked, hygiene
from .held import Held, HeldJobs
from .outcome import Finish, Finished, Outcome, weight
from .running import LeaseLost, Running
from .slot import Interrupted, Slot

OWN_FRAMES = 3
"""Frames of this module between the catch and the handler, left out of tracebacks."""


class Executor:
    """A fixed number of long-lived threads that take held jobs from one queue."""

    def __init__(
        self,
        threads: int,
        held: HeldJobs,
        running: Running,
        *,
        ended: Callable[[Held, Outcome, float], None],
        died: Callable[[str, BaseException], None],
    ) -> None:
        self._queue: queue.SimpleQueue[Held | None] = queue.SimpleQueue()
        self._held = held
        self._running = running
        self._ended = ended
        self._died = died
        self._generation = forked.generation
        self._slots = [Slot() for _ in range(threads)]
        self._threads = [
            threading.Thread(target=self._run, args=(slot,), name=f"pgjobs-{n}", daemon=True)
            for n, slot in enumerate(self._slots)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def submit(self, held: Held) -> None:
        """Put a job in the buffer."""
        self._queue.put(held)

    def stop(self, timeout: float) -> bool:
        """End every thread after its job; whether all did within ``timeout`` seconds."""
        for _ in self._threads:
            self._queue.put(None)
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, slot: Slot) -> None:
        try:
            slot.adopt(hygiene.adopt_thread())
            while (held := self._queue.get()) is not None:
                if not self._held.start(held, slot):
                    continue  # released while it waited
                # A context of its own: what the handler sets (language, time zone, context variables) ends with it.
                result = contextvars.Context().run(self._run_one, held, slot)
                took = self._held.end(held, returned=isinstance(result, (Finish, Finished)), weight=weight(result))
                if took is not None:
                    self._ended(held, result, took)
            hygiene.leave_thread()
        except BaseException as e:  # noqa: BLE001
            self._died("executor", e)

    def _run_one(self, held: Held, slot: Slot) -> Outcome:
        """The life of one job, from its payload to its outcome."""
        handler = self._running.handler(held.job)
        capture.keeper.set(held)
        hygiene.before()
        try:
            arguments = self._running.arguments(handler, held.job)
            if not isinstance(arguments, dict):
                return arguments
            current_id.set(held.job.id)
            self._running.starts(held.job)
            with restored(held.job.meta):
                return self._interruptible(held, slot, handler, arguments)
        finally:
            if held.told:
                hygiene.discard_all()
            hygiene.after()

    def _interruptible(self, held: Held, slot: Slot, handler: Handler, arguments: dict[str, Any]) -> Outcome:
        """Run the handler where the limiter may interrupt it; nothing of an interruption leaves this method."""
        ended: Outcome | None = None
        raised: BaseException | None = None
        try:
            try:
                slot.arm(held)
                ended = self._call(held, handler, arguments)
            except BaseException as e:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a handler are failures of its job
                raised = e
            slot.disarm()
        except Interrupted as e:  # in the very moment between the handler and the disarming
            slot.disarm()
            raised = raised or e
        if ended is not None:
            return ended
        return self._running.raised(held, handler, raised or Interrupted(), skip=OWN_FRAMES)

    def _call(self, held: Held, handler: Handler, arguments: dict[str, Any]) -> Outcome:
        if not handler.atomic:
            return self._running.returned(self._handle(held, handler, arguments))
        # Exactly once: the effects and the finish are one transaction.
        alias = self._running.settings.DATABASE
        with transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
            finish = self._running.returned(self._handle(held, handler, arguments))
            if not store.finish(connections[alias], held.job.id, held.job.lease, finish.result, finish.note):
                raise LeaseLost
        if not transaction.get_autocommit(using=alias):
            transaction.commit(using=alias)  # with AUTOCOMMIT off, atomic() leaves that to its caller
        return Finished()

    def _handle(self, held: Held, handler: Handler, arguments: dict[str, Any]) -> object:
        args = (self._running.context(held),) if handler.takes_ctx else ()
        try:
            return handler.function(*args, **arguments)
        finally:
            if forked.generation != self._generation:
                forked.leave()
