"""``@job``: a function becomes a handler that can still be called, and that can be enqueued."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Concatenate, Generic, ParamSpec, TypedDict, TypeVar, Unpack, overload

from asgiref.sync import sync_to_async

from ..backoff import Backoff
from ..exceptions import ConfigurationError, Delay
from . import enqueueing
from .context import JobContext
from .enqueueing import Enqueued, Prepared
from .recurring import MakePayload, Misfire, Overlap, Schedule
from .registry import UNSET, Handler, make_handler, registry

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
Errors = type[BaseException] | tuple[type[BaseException], ...]


class EnqueueOptions(TypedDict, total=False):
    """What ``handler.using(…)`` takes: the options of :func:`pgjobs.enqueue`."""

    queue: str
    priority: int
    run_after: dt.datetime | dt.timedelta | float | None
    dedupe_key: str | None
    on_conflict: str
    max_attempts: int
    timeout: dt.timedelta | float | None
    expires_at: dt.datetime | None
    meta: Mapping[str, Any] | None
    using: str | None
    database: str | None
    """Another name of ``using``, which reads better here."""


OPTIONS = EnqueueOptions.__annotations__.keys() - {"database"}


class Options(Generic[P]):
    """A handler with options of :func:`pgjobs.enqueue` set: ``handler.using(priority=10)``."""

    def __init__(self, handler: Handler, options: Mapping[str, Any]) -> None:
        self.handler = handler
        self._options = options

    def using(self, **options: Unpack[EnqueueOptions]) -> Options[P]:
        """A copy with more options of :func:`pgjobs.enqueue` (of which ``using`` may be called ``database`` here)."""
        if "database" in options:
            options["using"] = options.pop("database")
        if unknown := set(options) - OPTIONS:
            raise TypeError(
                f"using() does not know {', '.join(sorted(unknown))}; it takes {', '.join(sorted(OPTIONS))}."
            )
        return Options(self.handler, {**self._options, **options})

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """Store a job with these arguments, in the caller's transaction."""
        return enqueueing.enqueue(self, self.handler.bind(args, kwargs) if args else kwargs, **self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Enqueued:
        """The same from a coroutine."""
        return await sync_to_async(self.enqueue, thread_sensitive=True)(*args, **kwargs)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> Prepared:
        """Check a job with these arguments and store nothing; for :func:`pgjobs.enqueue_many`."""
        return enqueueing.prepare(self, self.handler.bind(args, kwargs) if args else kwargs, **self._options)

    def __repr__(self) -> str:
        return f"<job {self.handler.kind!r}: {self.handler.where}>"


class Job(Options[P], Generic[P, R]):
    """What ``@job`` makes of a function. Calling it simply calls the function."""

    def __init__(self, handler: Handler) -> None:
        super().__init__(handler, {})
        functools.update_wrapper(self, handler.function)

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return self.handler.function(*args, **kwargs)  # type: ignore[no-any-return]


class Decorator:
    """``@job(…)``: waits for its function."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options

    @overload
    def __call__(self, function: Callable[Concatenate[JobContext, P], R], /) -> Job[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Job[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Job[Any, Any]:
        handler = make_handler(function, self._options)
        registry.add(handler)
        return Job(handler)


@overload
def job(function: Callable[Concatenate[JobContext, P], R], /) -> Job[P, R]: ...
@overload
def job(function: Callable[P, R], /) -> Job[P, R]: ...
@overload
def job(
    *,
    kind: str | None = ...,
    aliases: Iterable[str] = ...,
    queue: str = ...,
    priority: int = ...,
    max_attempts: int | None = ...,
    timeout: Delay | None = ...,
    retry_on: Errors | None = ...,
    discard_on: Errors = ...,
    backoff: Backoff | None = ...,
    atomic: bool = ...,
    upgrade: Callable[[dict[str, Any]], Mapping[str, Any]] | None = ...,
    sensitive: Iterable[str] = ...,
    cron: str | None = ...,
    every: Delay | None = ...,
    timezone: str | None = ...,
    misfire: Misfire = ...,
    overlap: Overlap = ...,
    max_lateness: Delay | None = ...,
    schedule_payload: Mapping[str, Any] | MakePayload | None = ...,
    schedule_name: str | None = ...,
    schedules: Iterable[Schedule] = ...,
) -> Decorator: ...
def job(
    function: Callable[..., Any] | None = None,
    /,
    *,
    kind: str | None = None,
    aliases: Iterable[str] = (),
    queue: str = "default",
    priority: int = 0,
    max_attempts: int | None = None,
    timeout: Delay | None = UNSET,
    retry_on: Errors | None = None,
    discard_on: Errors = (),
    backoff: Backoff | None = None,
    atomic: bool = False,
    upgrade: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    sensitive: Iterable[str] = (),
    cron: str | None = None,
    every: Delay | None = None,
    timezone: str | None = None,
    misfire: Misfire = "once",
    overlap: Overlap = "allow",
    max_lateness: Delay | None = None,
    schedule_payload: Mapping[str, Any] | MakePayload | None = None,
    schedule_name: str | None = None,
    schedules: Iterable[Schedule] = (),
) -> Any:
    """Register a function as the handler of a kind of job; with or without options.

    ``kind`` is the function's name unless given; ``aliases`` are former names, still run. ``queue``, ``priority``,
    ``max_attempts``, ``timeout`` (seconds or a timedelta; None: no limit) are the defaults of its jobs.

    An exception is retried with ``backoff`` (:class:`pgjobs.Exponential`, :class:`~pgjobs.Linear`, :class:`~pgjobs.Fixed`,
    or a callable: number of the failed attempt → seconds) until ``max_attempts``, then the job is dead. With ``retry_on``
    only those exceptions are retried, any other makes it dead at once; those of ``discard_on`` end it as failed.

    ``atomic=True`` runs the handler and records its success in one transaction on ``PGJOBS["DATABASE"]``: its effects there
    happen exactly once. ``upgrade`` may turn an old payload into one that fits. ``sensitive`` names payload keys that the
    admin masks.

    ``cron`` (with ``timezone``) or ``every`` make it recur; ``misfire``, ``overlap``, ``max_lateness``, ``schedule_payload``
    and ``schedule_name`` are the schedule's other options, explained at :class:`pgjobs.schedules.Schedule`. ``schedules``
    takes more of them.

    Raises ConfigurationError for options that cannot work, and when two handlers share a kind.
    """
    options = {
        "kind": kind,
        "aliases": (aliases,) if isinstance(aliases, str) else tuple(aliases),
        "queue": queue,
        "priority": priority,
        "max_attempts": max_attempts,
        "timeout": timeout,
        "retry_on": retry_on,
        "discard_on": discard_on,
        "backoff": backoff,
        "atomic": atomic,
        "upgrade": upgrade,
        "sensitive": (sensitive,) if isinstance(sensitive, str) else tuple(sensitive),
        "schedules": _schedules(
            schedules,
            cron=cron,
            every=every,
            timezone=timezone,
            misfire=misfire,
            overlap=overlap,
            max_lateness=max_lateness,
            payload=schedule_payload,
            name=schedule_name,
        ),
    }
    decorator = Decorator(options)
    return decorator if function is None else decorator(function)


def _schedules(more: Iterable[Schedule], **direct: Any) -> tuple[Schedule, ...]:
    """The schedule that the direct options say, and those that were given as such."""
    if direct["cron"] is not None or direct["every"] is not None:
        return Schedule(**direct), *more
    if given := [name for name, value in direct.items() if value not in (None, "once", "allow")]:
        names = ", ".join({"payload": "schedule_payload", "name": "schedule_name"}.get(name, name) for name in given)
        raise ConfigurationError(f"@job: {names} without cron or every says nothing. Give one of the two.")
    return (more,) if isinstance(more, Schedule) else tuple(more)
