"""What a running handler may know and say of its job; and the context that travels from the enqueueing code to the run."""

from __future__ import annotations

import contextlib
import contextvars
import datetime as dt
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from .. import payload
from ..exceptions import ConfigurationError, EnqueueError

logger = logging.getLogger("pgjobs")


class Holder(Protocol):
    """What a context asks of the worker that holds its job."""

    def cancel_requested(self) -> bool: ...
    def still_owned(self) -> bool: ...
    def say_progress(self, progress: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class JobContext:
    """Handed to a handler whose first parameter is named ``ctx``.

    ``id`` stays the same over all attempts: use it as the key of effects that must not happen twice. ``attempt`` is 1 for
    the first run; ``scheduled_for`` is the nominal time of a recurring job's tick, else None.
    """

    id: int
    kind: str
    attempt: int
    max_attempts: int
    scheduled_for: dt.datetime | None
    meta: Mapping[str, Any]
    log: logging.LoggerAdapter[logging.Logger]
    """A logger whose lines carry the job's id, kind, queue and attempt."""
    _holder: Holder = field(repr=False)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked to cancel this job, or its lease is lost; known within a heartbeat."""
        return self._holder.cancel_requested()

    def still_owned(self) -> bool:
        """Whether the job is still this worker's, asked of the database. False also when it cannot be asked."""
        return self._holder.still_owned()

    def progress(self, done: int, total: int | None = None, text: str = "") -> None:
        """Say how far the job is. Cheap: the worker stores the latest within a second, outside the handler's transaction."""
        self._holder.say_progress({"done": done, "total": total, "text": payload.mend(str(text))[:1000]})


current_id: contextvars.ContextVar[int | None] = contextvars.ContextVar("pgjobs_current_id", default=None)
"""The job whose handler is running here; jobs that it enqueues name it as their parent."""

Capture = Callable[[], Mapping[str, Any]]
Restore = Callable[[Mapping[str, Any]], AbstractContextManager[Any]]


class _Hooks:
    """The one pair of hooks."""

    capture: Capture | None = None
    restore: Restore | None = None


def set_context_hooks(capture: Capture | None, restore: Restore | None) -> None:
    """Register the pair that carries context (request id, tenant, language) from the enqueueing code to the run.

    ``capture()`` answers a JSON object, stored in the job's ``meta``; ``restore(meta)`` is a context manager around the
    run. Call it in an ``AppConfig.ready()``; ``set_context_hooks(None, None)`` removes the pair.
    """
    if (capture is None) != (restore is None):
        raise ConfigurationError("set_context_hooks() takes both hooks, or None for both.")
    _Hooks.capture, _Hooks.restore = capture, restore


def captured(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The ``meta`` of a new job: what the hook captures, and over it what the caller gave."""
    if meta is not None and not isinstance(meta, Mapping):
        raise EnqueueError(f"meta has to be a dict or None, not {type(meta).__name__}.")
    if _Hooks.capture is None:
        return None if meta is None else dict(meta)
    return {**_Hooks.capture(), **(meta or {})} or None


_NOTHING = contextlib.nullcontext()


def restored(meta: Mapping[str, Any] | None) -> AbstractContextManager[None]:
    """Around a run: the context that was captured. A hook that raises is logged, and changes nothing else."""
    return _NOTHING if _Hooks.restore is None else _restored(_Hooks.restore, meta)


@contextlib.contextmanager
def _restored(restore: Restore, meta: Mapping[str, Any] | None) -> Iterator[None]:
    stack = contextlib.ExitStack()
    try:
        stack.enter_context(restore(meta or {}))
    except BaseException:
        logger.exception("the hook that restores a job's context raised; the job runs without it")
    try:
        yield
    finally:
        try:
            stack.close()
        except BaseException:
            logger.exception("the hook that restores a job's context raised at its end; the job's outcome stands")
