"""What running a job is, whether in a thread or on the event loop: its arguments, its context, and what came of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from .. import payload as json_payload
from .. import signals
from ..api.context import JobContext
from ..api.registry import Handler, registry
from ..conf import Settings
from ..exceptions import Outcome as SaidByHandler
from ..exceptions import PayloadTypeError
from ..store import ClaimedJob
from . import outcome
from .held import Held
from .outcome import NOTHING, Finish, Lost, Outcome

logger = logging.getLogger("pgjobs")
job_logger = logging.getLogger("pgjobs.job")


_decode = json.JSONDecoder().scan_once  # type: ignore[attr-defined]
"""What ``json.loads`` does without its preparations: PostgreSQL writes jsonb with no blank around it."""


class LeaseLost(Exception):
    """The lease was lost before an ``atomic=True`` handler could finish: its transaction is rolled back."""


class Running:
    """The steps that threads and the event loop share."""

    def __init__(
        self, settings: Settings, ask_owned: Callable[[Held], bool], say_progress: Callable[[Held], None]
    ) -> None:
        self.settings = settings
        self._ask_owned = ask_owned
        self._say_progress = say_progress

    def handler(self, job: ClaimedJob) -> Handler:
        """The job's handler; claims are by kind, and the registry does not shrink."""
        handler = registry.find(job.kind)
        if handler is None:
            raise LookupError(f"no handler for kind {job.kind!r}")
        return handler

    def arguments(self, handler: Handler, job: ClaimedJob) -> dict[str, Any] | Outcome:
        """The handler's arguments, or the ending of a job whose payload does not fit."""
        try:
            return fit(handler, job.payload)
        except PayloadTypeError as e:
            return outcome.misfit(e)
        except BaseException as e:  # noqa: BLE001 - the upgrade callable of the user
            return outcome.of_exception(e, job, handler, self.settings)

    def context(self, held: Held) -> JobContext:
        """What the handler may know and say."""
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

    def starts(self, job: ClaimedJob) -> None:
        """Tell people."""
        if signals.job_started.receivers:
            signals.send(signals.job_started, job.kind, job=job, attempt=job.attempt, exc_info=None)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("job %d %s: started, attempt %d", job.id, job.kind, job.attempt, extra=extra(job))

    def returned(self, value: object) -> Finish:
        """The ending of a handler that returned."""
        if value is None:
            return NOTHING
        result, note = json_payload.dumps_result(value, self.settings.MAX_PAYLOAD_BYTES)
        return Finish(result, note)

    def raised(self, held: Held, handler: Handler, error: BaseException, *, skip: int) -> Outcome:
        """The ending of a handler that raised; ``skip`` is how many frames of ours its traceback begins with."""
        kind = type(error)  # isinstance() would ask the exception, which may do anything
        if issubclass(kind, LeaseLost):
            return Lost()
        if held.told and not issubclass(kind, SaidByHandler):
            return outcome.of_stopped(held.told, error, held.job, handler, self.settings)
        return outcome.of_exception(error, held.job, handler, self.settings, skip=skip)


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
    arguments: dict[str, Any] = _decode(text, 0)[0]
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
