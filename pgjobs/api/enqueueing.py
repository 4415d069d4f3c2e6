"""enqueue() and its relatives: check what was given, then hand plain values to the store.

A job is stored in the transaction that is open on the database's connection, savepoints included: it exists if and only
if that transaction commits.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings as django_settings
from django.core.exceptions import SynchronousOnlyOperation
from django.db import ProgrammingError, connections, transaction

from .. import payload as json_payload
from .. import signals, store
from ..conf import Settings, get_settings
from ..exceptions import EnqueueError, PayloadTypeError, SchemaError, seconds
from .context import captured, current_id
from .registry import UNSET, Handler, check_attempts, check_number, check_timeout, registry

if TYPE_CHECKING:
    from ..models import Job

logger = logging.getLogger("pgjobs")

CHUNK = 2000
"""Jobs of one statement of :func:`enqueue_many`, at most."""

CHUNK_BYTES = 8 * 2**20
"""Characters of payload of one statement, give or take a payload: PostgreSQL takes 256 MiB of jsonb at most."""


UNDEFINED_FUNCTION = "42883"
"""PostgreSQL's code of it."""


class HasHandler(Protocol):
    """What ``@job`` makes of a function."""

    @property
    def handler(self) -> Handler: ...


class Enqueued(NamedTuple):
    """What became of an enqueue: the job's id, whether this call created it, and the action.

    ``action`` is created, kept (a live job holds the dedupe key; ``id`` is the holder), replaced, or rerun.
    """

    id: int
    created: bool
    action: str
    kind: str
    queue: str
    using: str

    def get(self) -> Job:
        """The row as it is now. Raises Job.DoesNotExist when it is gone (pruned, or rolled back)."""
        job: Job = apps.get_model("pgjobs", "Job")._default_manager.using(self.using).get(pk=self.id)
        return job


class Prepared(NamedTuple):
    """A checked job that is not stored yet; give it to :func:`enqueue_many`."""

    new: store.NewJob
    using: str | None


def enqueue(
    job_or_kind: str | HasHandler,
    payload: Mapping[str, Any] | None = None,
    /,
    *,
    queue: str = UNSET,
    priority: int = UNSET,
    run_after: dt.datetime | dt.timedelta | float | None = None,
    dedupe_key: str | None = None,
    on_conflict: str = "keep",
    max_attempts: int = UNSET,
    timeout: dt.timedelta | float | None = UNSET,
    expires_at: dt.datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> Enqueued:
    """Store a job in the caller's transaction.

    ``run_after`` is a time, or a delay in seconds or as a timedelta, by the database's clock. ``dedupe_key`` makes it one
    of at most one live job of its kind and key; ``on_conflict`` says what a second call does: ``keep``, ``replace`` or
    ``rerun``. ``timeout=None`` is no limit. ``using`` is a database alias. What is left out comes from the handler, then
    from the settings.

    Raises a subclass of ValueError that names the argument; of TypeError too for arguments that do not fit the handler
    and for types that JSON lacks. The caller's transaction is usable afterwards. Raises SchemaError before ``migrate``.
    """
    prepared = prepare(
        job_or_kind,
        payload,
        queue=queue,
        priority=priority,
        run_after=run_after,
        dedupe_key=dedupe_key,
        on_conflict=on_conflict,
        max_attempts=max_attempts,
        timeout=timeout,
        expires_at=expires_at,
        meta=meta,
        using=using,
    )
    settings = get_settings()
    alias = prepared.using or settings.DATABASE
    _warn_of_other_transactions(alias)
    new = prepared.new
    with _hints("enqueue", alias):
        id_, created, action = store.enqueue(
            connections[alias], new, parent_id=_parent_id(alias, settings), notify=settings.NOTIFY
        )
    return _announce(Enqueued(id_, created, action, new.kind, new.queue, alias))


aenqueue = sync_to_async(enqueue, thread_sensitive=True)


def enqueue_many(
    jobs: Iterable[Prepared | tuple[str | HasHandler, Mapping[str, Any] | None]], *, using: str | None = None
) -> list[Enqueued]:
    """Store many jobs, all or none, a statement for each few thousand; a handle for each, in order.

    Takes what ``handler.prepare(…)`` made, or ``(job_or_kind, payload)`` pairs, from any iterable. Jobs with a dedupe key
    are stored last, in the order of their keys, so that two calls never deadlock.
    """
    settings = get_settings()
    alias = using or settings.DATABASE
    _warn_of_other_transactions(alias)
    handles: list[Enqueued] = []
    keyed: list[tuple[int, store.NewJob]] = []
    with _hints("enqueue_many", alias), transaction.atomic(using=alias):
        parent_id = _parent_id(alias, settings)

        def flush(places: Sequence[int], news: Sequence[store.NewJob]) -> None:
            answers = store.enqueue_many(connections[alias], news, parent_id=parent_id, notify=settings.NOTIFY)
            for place, new, (id_, created, action) in zip(places, news, answers, strict=True):
                handles[place] = Enqueued(id_, created, action, new.kind, new.queue, alias)

        waiting: Any = Enqueued(0, False, "", "", "", alias)
        for chunk in _chunks(_new_jobs(jobs, alias)):
            first = len(handles)
            handles += [waiting] * len(chunk)
            with_key = [(n, new) for n, new in enumerate(chunk, first) if new.dedupe_key is not None]
            keyed += with_key
            if not with_key:
                flush(range(first, len(handles)), chunk)
            elif len(with_key) < len(chunk):
                plain = [n for n, new in enumerate(chunk) if new.dedupe_key is None]
                flush([first + n for n in plain], [chunk[n] for n in plain])
        keyed.sort(key=lambda one: (one[1].kind.encode(), (one[1].dedupe_key or "").encode(), one[0]))
        first = 0
        for chunk in _chunks(new for _, new in keyed):
            flush([n for n, _ in keyed[first : first + len(chunk)]], chunk)
            first += len(chunk)
    if signals.job_enqueued.receivers:
        for handle in handles:
            _announce(handle)
    return handles


aenqueue_many = sync_to_async(enqueue_many, thread_sensitive=True)


def prepare(
    job_or_kind: str | HasHandler,
    payload: Mapping[str, Any] | None = None,
    /,
    *,
    queue: str = UNSET,
    priority: int = UNSET,
    run_after: dt.datetime | dt.timedelta | float | None = None,
    dedupe_key: str | None = None,
    on_conflict: str = "keep",
    max_attempts: int = UNSET,
    timeout: dt.timedelta | float | None = UNSET,
    expires_at: dt.datetime | None = None,
    meta: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> Prepared:
    """Check everything that :func:`enqueue` checks, and store nothing."""
    settings = get_settings()
    handler = find_handler(job_or_kind)
    if isinstance(job_or_kind, str):
        kind = handler.kind if handler else json_payload.check_text(job_or_kind, "kind", 255)
    else:
        kind = job_or_kind.handler.kind
    given = {} if payload is None else payload
    if type(given) is not dict and not isinstance(given, Mapping):
        raise PayloadTypeError(f"payload has to be a dict of the handler's arguments, not {type(given).__name__}.")
    if handler is not None:
        handler.check(given)
    if on_conflict not in ("keep", "replace", "rerun"):
        raise EnqueueError(f"on_conflict has to be 'keep', 'replace' or 'rerun', not {on_conflict!r}.")
    if using is not None and using not in connections.settings:
        raise EnqueueError(f"using={using!r} is no alias of DATABASES; there are {', '.join(connections.settings)}.")
    whole_meta = captured(meta)
    try:
        if (
            handler is not None
            and whole_meta is None
            and run_after is None
            and dedupe_key is None
            and expires_at is None
            and queue is UNSET
            and priority is UNSET
            and max_attempts is UNSET
            and timeout is UNSET
            and on_conflict == "keep"
        ):  # as most calls are
            text = json_payload.dumps(given if type(given) is dict else dict(given), settings.MAX_PAYLOAD_BYTES)
            return Prepared(store.NewJob(handler.kind, text, *_defaults(handler, settings)), using)
        new = store.NewJob(
            kind=kind,
            payload=json_payload.dumps(dict(given), settings.MAX_PAYLOAD_BYTES),
            queue=_queue(queue, handler, settings),
            priority=_pick(
                priority, handler.priority if handler else 0, lambda v: check_number(v, "priority", -100, 100)
            ),
            max_attempts=_pick(
                max_attempts, (handler and handler.max_attempts) or settings.MAX_ATTEMPTS, check_attempts
            ),
            timeout=_timeout(timeout, handler, settings),
            run_after=_run_after(run_after),
            dedupe_key=None if dedupe_key is None else json_payload.check_text(dedupe_key, "dedupe_key", 2000),
            on_conflict=on_conflict,
            expires_at=None if expires_at is None else _time(expires_at, "expires_at"),
            meta=None if whole_meta is None else json_payload.dumps(whole_meta, settings.MAX_PAYLOAD_BYTES, "meta"),
        )
    except EnqueueError:
        raise
    except ValueError as e:
        raise EnqueueError(str(e)) from None
    return Prepared(new, using)


_known: dict[Handler, tuple[str, int, int, float | None]] = {}
_known_by: list[Settings] = []
"""The settings by which they are known."""


def _defaults(handler: Handler, settings: Settings) -> tuple[str, int, int, float | None]:
    """Queue, priority, max_attempts and timeout of a job of which nothing is said but its payload; checked once a handler."""
    if not _known_by or _known_by[0] is not settings:
        _known.clear()
        _known_by[:] = [settings]
    if handler not in _known:
        most = handler.max_attempts or settings.MAX_ATTEMPTS
        _known[handler] = (_queue(UNSET, handler, settings), handler.priority, most, _timeout(UNSET, handler, settings))
    return _known[handler]


def find_handler(job_or_kind: str | HasHandler) -> Handler | None:
    """The handler of what was given; None for a kind that other code runs."""
    if isinstance(job_or_kind, str):
        return registry.find(job_or_kind)
    handler = getattr(job_or_kind, "handler", None)
    if not isinstance(handler, Handler):
        raise EnqueueError(
            f"enqueue() takes a function with @job or a kind (text), not {job_or_kind!r}. Is the decorator missing?"
        )
    return handler


def _pick(given: Any, default: Any, check: Any) -> Any:
    return default if given is UNSET or given is None else check(given)


def _queue(given: Any, handler: Handler | None, settings: Settings) -> str:
    queue: str = _pick(
        given, handler.queue if handler else "default", lambda v: json_payload.check_text(v, "queue", 255)
    )
    if settings.QUEUES is not None and queue not in settings.QUEUES:
        raise EnqueueError(f"queue {queue!r} is none of PGJOBS['QUEUES']: {', '.join(settings.QUEUES)}.")
    return queue


def _timeout(given: Any, handler: Handler | None, settings: Settings) -> float | None:
    if given is not UNSET:
        return check_timeout(given)
    if handler is not None and handler.timeout is not UNSET:
        return handler.timeout
    return settings.TIMEOUT


def _run_after(value: Any) -> dt.datetime | float | None:
    if value is None or isinstance(value, dt.datetime):
        return None if value is None else _time(value, "run_after")
    if isinstance(value, bool) or not isinstance(value, (int, float, dt.timedelta)):
        raise EnqueueError(f"run_after takes a datetime, a timedelta or seconds; got {type(value).__name__}.")
    return seconds(value, "run_after")


def _time(value: Any, name: str) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise EnqueueError(f"{name} has to be a datetime, not {type(value).__name__}.")
    if value.tzinfo is None and django_settings.USE_TZ:
        raise EnqueueError(
            f"{name} is a naive datetime while USE_TZ is on. Make it aware: django.utils.timezone.make_aware(value)."
        )
    if not 1 < value.year < 9999:
        raise EnqueueError(f"{name} has to lie between the years 2 and 9998, not in {value.year}.")
    return value


def _new_jobs(jobs: Iterable[Any], alias: str) -> Iterator[store.NewJob]:
    for n, one in enumerate(jobs):
        if isinstance(one, Prepared):
            prepared = one
        elif isinstance(one, tuple) and len(one) == 2:
            prepared = prepare(*one)
        else:
            raise EnqueueError(
                f"item {n} of enqueue_many() is {one!r}; it has to be handler.prepare(…) or a pair (job_or_kind, payload)."
            )
        if prepared.using not in (None, alias):
            raise EnqueueError(
                f"item {n} of enqueue_many() is prepared for {prepared.using!r}, but stored in {alias!r}."
            )
        yield prepared.new


def _chunks(news: Iterable[store.NewJob]) -> Iterator[list[store.NewJob]]:
    """Jobs for one statement each: not too many, and not too much."""
    chunk: list[store.NewJob] = []
    size = 0
    for new in news:
        chunk.append(new)
        size += len(new.payload) + len(new.meta or "")
        if len(chunk) >= CHUNK or size >= CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _parent_id(alias: str, settings: Settings) -> int | None:
    """The running job, when the new one goes into the same database."""
    return current_id.get() if alias == settings.DATABASE else None


def _announce(handle: Enqueued) -> Enqueued:
    if handle.created:
        signals.send(signals.job_enqueued, handle.kind, job=handle, attempt=0, exc_info=None)
    return handle


def _warn_of_other_transactions(alias: str) -> None:
    """A job on one database is not part of a transaction on another: say so, since it looks as if it were."""
    for other in connections.all(initialized_only=True):
        if other.alias != alias and other.in_atomic_block and not connections[alias].in_atomic_block:
            logger.warning(
                "enqueue on database %r inside a transaction on %r only: the job is stored even if that one rolls back",
                alias,
                other.alias,
            )


class _hints:  # noqa: N801 - reads as a statement
    """Two errors that a newcomer meets, with the way out: database access in a coroutine, and a forgotten ``migrate``."""

    def __init__(self, name: str, alias: str) -> None:
        self.name = name
        self.alias = alias

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, SynchronousOnlyOperation):
            raise SynchronousOnlyOperation(
                f"{self.name}() was called in an async context; use `await a{self.name}(…)`."
            ) from None
        if isinstance(error, ProgrammingError) and getattr(error.__cause__, "sqlstate", "") == UNDEFINED_FUNCTION:
            raise SchemaError(
                f"the database {connections[self.alias].settings_dict['NAME']!r} (alias {self.alias!r}) lacks the functions "
                'of pgjobs on this connection\'s search path. With "pgjobs" in INSTALLED_APPS, run '
                f"`manage.py migrate --database {self.alias}`."
            ) from error
