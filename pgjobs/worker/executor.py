"""Threads that run handlers.

One job is a straight line: start it, fit the payload, call the handler, turn what came of it into exactly one outcome,
clean up, hand the outcome on. Nothing that a handler does may reach the thread's next job.
"""

from __future__ import annotations

import contextvars
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from asgiref.sync import async_to_sync
from django.db import connections, transaction

from .. import payload as json_payload
from .. import signals, store
from ..api.context import JobContext, current, restored
from ..api.registry import Handler, registry
from ..conf import Settings
from ..exceptions import Outcome as SaidByHandler
from ..exceptions import PayloadTypeError
from ..store import ClaimedJob
from . import capture, hygiene, outcome
from .held import Held, HeldJobs
from .outcome import Finish, Finished, Lost, Outcome
from .slot import Interrupted, Slot

logger = logging.getLogger("pgjobs")
job_logger = logging.getLogger("pgjobs.job")

OWN_FRAMES = 2
"""Frames of this module between the catch and the handler, left out of tracebacks."""


class LeaseLost(Exception):
    """The lease was lost before an ``atomic=True`` handler could finish: its transaction is rolled back."""


class Executor:
    """A fixed number of long-lived threads that take held jobs from one queue."""

    def __init__(
        self,
        threads: int,
        held: HeldJobs,
        settings: Settings,
        *,
        ended: Callable[[Held, Outcome, float], None],
        ask_owned: Callable[[Held], bool],
        say_progress: Callable[[Held], None],
        died: Callable[[str, BaseException], None],
    ) -> None:
        self._queue: queue.SimpleQueue[Held | None] = queue.SimpleQueue()
        self._held = held
        self._settings = settings
        self._ended = ended
        self._ask_owned = ask_owned
        self._say_progress = say_progress
        self._died = died
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
                began = time.monotonic()
                # A context of its own: what the handler sets (language, time zone, context variables) ends with it.
                result = contextvars.Context().run(self._run_one, held, slot)
                if self._held.end(held, returned=isinstance(result, (Finish, Finished))):
                    self._ended(held, result, time.monotonic() - began)
            hygiene.leave_thread()
        except BaseException as e:  # noqa: BLE001
            self._died("executor", e)

    def _run_one(self, held: Held, slot: Slot) -> Outcome:
        """The life of one job, from its payload to its outcome. Never raises."""
        job = held.job
        handler = registry.find(job.kind)
        if handler is None:  # claims are by kind; the registry does not shrink
            raise LookupError(f"no handler for kind {job.kind!r}")
        kept = capture.new()
        capture.lines.set(kept)
        hygiene.before()
        try:
            arguments = fit(handler, job.payload)
        except PayloadTypeError as e:
            return outcome.misfit(e)
        except Exception as e:  # noqa: BLE001 - the upgrade callable of the user
            return outcome.of_exception(e, job, handler, self._settings)
        ctx = self._context(held)
        token = current.set(ctx)
        signals.send(signals.job_started, job.kind, job=job, attempt=job.attempt, exc_info=None)
        logger.debug("job %d %s: started, attempt %d", job.id, job.kind, job.attempt, extra=extra(job))
        try:
            with restored(job.meta):
                return self._interruptible(held, slot, handler, ctx, arguments)
        finally:
            current.reset(token)
            held.log = list(kept)
            if held.told:
                hygiene.discard_all()
            hygiene.after()

    def _interruptible(
        self, held: Held, slot: Slot, handler: Handler, ctx: JobContext, arguments: dict[str, Any]
    ) -> Outcome:
        """Run the handler where the limiter may interrupt it; nothing of an interruption leaves this method."""
        ended: Outcome | None = None
        raised: BaseException | None = None
        try:
            try:
                slot.arm(held)
                ended = self._call(held, handler, ctx, arguments)
            except BaseException as e:  # noqa: BLE001 - SystemExit and KeyboardInterrupt of a handler are failures of its job
                raised = e
            slot.disarm()
        except Interrupted as e:  # in the very moment between the handler and the disarming
            slot.disarm()
            raised = raised or e
        if ended is not None:
            return ended
        if isinstance(raised, LeaseLost):
            return Lost()
        if held.told and not isinstance(raised, SaidByHandler):
            return outcome.of_stopped(held.told, raised, held.job, handler, self._settings)
        if raised is None:
            raise RuntimeError("a handler neither returned nor raised")
        return outcome.of_exception(raised, held.job, handler, self._settings, skip=OWN_FRAMES)

    def _call(self, held: Held, handler: Handler, ctx: JobContext, arguments: dict[str, Any]) -> Outcome:
        function: Callable[..., Any] = async_to_sync(handler.function) if handler.is_async else handler.function
        args = (ctx,) if handler.takes_ctx else ()
        if not handler.atomic:
            return self._finish(function(*args, **arguments))
        # Exactly once: the effects and the finish are one transaction.
        alias = self._settings.DATABASE
        with transaction.atomic(using=alias):
            with connections[alias].cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            finish = self._finish(function(*args, **arguments))
            if not store.finish(connections[alias], held.job.id, held.job.lease, finish.result, finish.note):
                raise LeaseLost
        return Finished()

    def _finish(self, value: object) -> Finish:
        result, note = json_payload.dumps_result(value, self._settings.MAX_PAYLOAD_BYTES)
        return Finish(result, note)

    def _context(self, held: Held) -> JobContext:
        job = held.job
        return JobContext(
            id=job.id,
            kind=job.kind,
            attempt=job.attempt,
            max_attempts=job.max_attempts,
            scheduled_for=job.scheduled_for,
            meta=job.meta or {},
            log=logging.LoggerAdapter(job_logger, extra(job)),
            _holder=_Holder(held, self._ask_owned, self._say_progress),
        )


class _Holder:
    """What a handler's context asks of this worker."""

    def __init__(self, held: Held, ask: Callable[[Held], bool], say: Callable[[Held], None]) -> None:
        self._held, self._ask, self._say = held, ask, say

    def cancel_requested(self) -> bool:
        return self._held.cancel or self._held.lost

    def still_owned(self) -> bool:
        return not self._held.lost and self._ask(self._held)

    def say_progress(self, progress: dict[str, Any]) -> None:
        self._held.progress = progress
        self._say(self._held)


def fit(handler: Handler, text: str) -> dict[str, Any]:
    """The handler's arguments of a stored payload, upgraded when it does not fit; raises PayloadTypeError."""
    arguments: dict[str, Any] = json.loads(text)
    try:
        handler.check(arguments)
    except PayloadTypeError as e:
        if handler.upgrade is None:
            raise PayloadTypeError(
                f"{e} The job was stored for another signature: @job(upgrade=…) can fit old payloads."
            ) from None
        arguments = dict(handler.upgrade(arguments))
        handler.check(arguments)
    return arguments


def extra(job: ClaimedJob) -> dict[str, object]:
    """What each log line of a job carries."""
    return {"job_id": job.id, "kind": job.kind, "queue": job.queue, "attempt": job.attempt}
