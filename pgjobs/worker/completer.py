"""Records how runs ended: successes in batches, whatever gathered while the last flush ran; failures one by one, at once.

Every write is fenced by the lease of its claim. While the database is away outcomes wait here; a job whose outcome cannot be
recorded for a whole lease is no longer beaten, so that its lease lapses and another worker runs it.
"""

from __future__ import annotations

import functools
import json
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

from django.db import DataError, IntegrityError, ProgrammingError
from django.db.backends.base.base import BaseDatabaseWrapper

from .. import signals, store
from ..payload import mend
from . import capture, loop
from .announcer import Announcer
from .connection import close, ready
from .failure import Failure
from .held import Held, HeldJobs, Stage
from .outcome import (
    NOTHING,
    Bury,
    CancelHeld,
    FailForGood,
    Finish,
    Finished,
    Lost,
    Outcome,
    Release,
    RetryLater,
    SnoozeUntil,
    excused,
)
from .running import extra

logger = logging.getLogger("pgjobs")

BATCH = 1000
"""Finishes of one statement."""

BATCH_BYTES = 8 * 2**20
"""Characters of results of one statement, give or take a result: PostgreSQL takes 256 MiB of jsonb at most."""

TOO_MUCH = "54"
"""The class of PostgreSQL's errors about values beyond its limits (too large, too deep); Django calls them operational."""

UNSTORABLE = ValueError("how the run ended could not be stored")
"""The exception of a failure that stands for an ending which PostgreSQL refused."""

BUSY_PAUSE = 0.05
"""Seconds before a row that somebody's open transaction holds is tried again."""

AGAIN_PAUSE = 0.005
"""Seconds before the progress of a job whose row is held is tried again."""

LAST_TRIES = 10
"""How often the last progress of a job that has ended is tried again, before others are not kept waiting any longer."""

Item = tuple[Held, Outcome]


class Completer:
    """One thread, one connection, one queue."""

    def __init__(
        self,
        connection: BaseDatabaseWrapper,
        held: HeldJobs,
        announcer: Announcer,
        *,
        lease: float,
        died: Callable[[str, BaseException], None],
        recorded: Callable[[str, int], None],
    ) -> None:
        self._connection = connection
        self._held = held
        self._announcer = announcer
        self._lease = lease
        self._died = died
        self._recorded = recorded
        self._queue: queue.SimpleQueue[Item | Callable[[], None] | None] = queue.SimpleQueue()
        self._again: list[Item] = []
        self._thread = threading.Thread(target=self._run, name="pgjobs-completer", daemon=True)
        self._stopping = False

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def complete(self, held: Held, outcome: Outcome) -> None:
        """Record an outcome soon."""
        self._queue.put((held, outcome))

    def ask_owned(self, held: Held) -> bool:
        """Whether the database still gives the job to us; False when it does not answer within two seconds."""
        answer: Future[bool] = Future()

        def ask() -> None:
            try:
                answer.set_result(store.still_owned(ready(self._connection), held.job.id, held.job.lease))
            except Exception:  # noqa: BLE001
                close(self._connection)
                answer.set_result(False)

        self._queue.put(ask)
        try:
            return answer.result(timeout=2)
        except TimeoutError:
            return False

    def say_progress(self, held: Held) -> None:
        """Store the latest progress of a job soon; what its handler said last before it returned, ahead of its finish."""

        def say() -> None:
            progress = held.progress
            if progress is None or held.stage is Stage.GONE:
                return
            text, tries = json.dumps(progress), 0
            while store.progress(ready(self._connection), held.job.id, held.job.lease, text) == "busy":
                time.sleep(AGAIN_PAUSE)  # a beat holds the row, perhaps
                tries += 1
                if held.stage is not Stage.ENDING or tries > LAST_TRIES:  # else its finish may come first
                    self._queue.put(say)
                    return
            if held.progress is progress:  # else the handler has said more meanwhile
                held.progress = None

        self._queue.put(say)

    def stop(self, timeout: float) -> bool:
        """Record what waits, and end; whether it did within ``timeout`` seconds."""
        self._stopping = True
        self._queue.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        trouble = loop.Trouble("completer")
        try:
            while True:
                items, requests = self._gather()
                for request in requests:
                    try:
                        request()
                    except Exception as e:  # noqa: BLE001 - progress may be lost, outcomes may not
                        loop.logger.debug("completer: %s", loop.first_line(e))
                        close(self._connection)
                if items:
                    self._flush(items, trouble)
                if self._stopping and not self._again and self._queue.empty():
                    return
        except BaseException as e:  # noqa: BLE001
            self._died("completer", e)
        finally:
            close(self._connection)

    def _gather(self) -> tuple[list[Item], list[Callable[[], None]]]:
        """What is to be done now: what must be tried again, and all that gathered meanwhile."""
        items, self._again = self._again, []
        requests: list[Callable[[], None]] = []
        try:
            one = self._queue.get(timeout=BUSY_PAUSE if items else None)
            while True:
                if callable(one):
                    requests.append(one)
                elif one is not None:
                    items.append(one)
                if len(items) >= BATCH:
                    break
                one = self._queue.get_nowait()
        except queue.Empty:
            pass
        return items, requests

    def _flush(self, items: list[Item], trouble: loop.Trouble) -> None:
        """Record them; what could not be recorded is tried again."""
        done: list[tuple[Held, Finish]] = []
        for held, outcome in items:
            if isinstance(outcome, Finish):
                done.append((held, outcome))
            else:
                self._guarded([(held, outcome)], functools.partial(self._one, held, outcome), trouble)
        for some in _batches(done):
            self._guarded(list(some), functools.partial(self._many, some), trouble)

    def _guarded(self, items: list[Item], write: Callable[[BaseDatabaseWrapper], None], trouble: loop.Trouble) -> None:
        try:
            write(ready(self._connection))
            trouble.over()
        except Exception as e:  # noqa: BLE001
            if _refused(e):
                self._isolate(items, e, trouble)
                return
            pause = trouble.met(e, self._connection)
            # Our own connection went with the handler's: then it was the database, not the job.
            self._again += [(held, excused(outcome)) for held, outcome in items] if loop.away(e) else items
            time.sleep(pause)

    def _isolate(self, items: list[Item], error: Exception, trouble: loop.Trouble) -> None:
        """A value that PostgreSQL refuses: find whose it is by halving, and record that job without it."""
        if len(items) > 1:
            middle = len(items) // 2
            for half in (items[:middle], items[middle:]):
                self._flush(half, trouble)
            return
        [(held, outcome)] = items
        logger.error(
            "job %d %s: its outcome cannot be stored as it is (%s)",
            held.job.id,
            held.job.kind,
            loop.first_line(error),
            extra=extra(held.job),
        )
        if isinstance(outcome, Finish) and outcome.result is not None:
            note = mend(f"result not stored: PostgreSQL refused it ({loop.first_line(error)})")
            self._flush([(held, Finish(None, note))], trouble)
        elif isinstance(outcome, Finish) or getattr(outcome, "exception", None) is UNSTORABLE:
            self._held.drop(held)  # its lease lapses, and the reaper tells the tale
        else:
            held.log = None
            text = f"how it ended ({type(outcome).__name__}) could not be stored: {loop.first_line(error)}"
            failure = Failure("pgjobs.Unstorable", text[:1000].encode("ascii", "replace").decode(), "")
            last = held.job.attempt >= held.job.max_attempts
            instead = Bury(failure, UNSTORABLE) if last else RetryLater(failure, 60.0, UNSTORABLE)
            self._flush([(held, instead)], trouble)

    def _many(self, done: list[tuple[Held, Finish]], connection: BaseDatabaseWrapper) -> None:
        jobs = [held.job for held, _ in done]
        said = [(held.job.id, outcome) for held, outcome in done if outcome is not NOTHING]
        left = store.finish_many(
            connection,
            [job.id for job in jobs],
            [job.lease for job in jobs],
            {id_: outcome.result for id_, outcome in said if outcome.result is not None},
            {id_: outcome.note for id_, outcome in said if outcome.note is not None},
        )
        recorded = done
        if left:
            for held, outcome in done:
                if status := left.get(held.job.id):
                    self._answered(held, outcome, status)
            recorded = [one for one in done if one[0].job.id not in left]
            if not recorded:
                return
        self._held.drop(*(held for held, _ in recorded))
        self._recorded("done", len(recorded))
        if logger.isEnabledFor(logging.DEBUG) or signals.job_finished.receivers or any(o.note for _, o in said):
            for held, outcome in recorded:
                self._tell(held, outcome, "done")

    def _one(self, held: Held, outcome: Outcome, connection: BaseDatabaseWrapper) -> None:
        """One ending, by the verb of its name."""
        id_, lease, log = held.job.id, held.job.lease, capture.text(held)
        match outcome:
            case RetryLater(failure, delay, _, cause):
                status = store.retry(connection, id_, lease, **failure._asdict(), delay=delay, outcome=cause, log=log)
            case Bury(failure, _, cause):
                status = store.bury(connection, id_, lease, **failure._asdict(), outcome=cause, log=log)
            case FailForGood(failure):
                status = store.fail(connection, id_, lease, **failure._asdict(), log=log)
            case SnoozeUntil(until, reason):
                status = store.snooze(connection, id_, lease, until=until, reason=reason)
            case CancelHeld(reason):
                status = store.cancel_held(connection, id_, lease, reason=reason, log=log)
            case Release(reason):
                status = store.release(connection, [id_], [lease], started=True, reason=reason).get(id_, "lost")
            case Finished():
                status = "done"
            case Lost():
                status = "lost"
        self._answered(held, outcome, status)

    def _answered(self, held: Held, outcome: Outcome, status: str) -> None:
        """The database has spoken: tell people, or try again."""
        job = held.job
        if status == "busy":
            self._again.append((held, outcome))
            return
        self._held.drop(held)
        self._recorded(status, 1)
        if status == "lost":
            logger.warning(
                "job %d %s: the lease was lost, so its outcome was not recorded", job.id, job.kind, extra=extra(job)
            )
            return
        self._tell(held, outcome, status)

    def _tell(self, held: Held, outcome: Outcome, status: str) -> None:
        try:
            tell(self._announcer, held.job, outcome, status)
        except Exception:  # noqa: BLE001 - a filter of the logging may raise; what was recorded stands
            traceback.print_exc()


def _refused(error: Exception) -> bool:
    """Whether it is the values that the database, or the driver, does not take."""
    code = loop.sqlstate(error)
    unfit = isinstance(error, ProgrammingError) and code is None  # psycopg: a type that it cannot adapt
    return unfit or isinstance(error, (DataError, IntegrityError, UnicodeError)) or (code or "").startswith(TOO_MUCH)


def _batches(done: list[tuple[Held, Finish]]) -> Iterator[list[tuple[Held, Finish]]]:
    """Finishes for one statement each."""
    some: list[tuple[Held, Finish]] = []
    size = 0
    for one in done:
        some.append(one)
        size += len(one[1].result or "")
        if size >= BATCH_BYTES:
            yield some
            some, size = [], 0
    if some:
        yield some


def tell(announcer: Announcer, job: store.ClaimedJob, outcome: Outcome, status: str) -> None:
    """The log line and the signal of a recorded ending."""
    exception = getattr(outcome, "exception", None)
    named: dict[str, Any] = {"job": job, "attempt": job.attempt, "exc_info": exception}
    said = "" if exception is None else f" ({outcome.failure.error[:200]})"  # type: ignore[union-attr]
    said = said.replace("\n", " ")
    if status == "done":
        logger.debug("job %d %s: done, attempt %d", job.id, job.kind, job.attempt, extra=extra(job))
        if isinstance(outcome, Finish) and outcome.note:
            logger.warning("job %d %s: done, but %s", job.id, job.kind, outcome.note, extra=extra(job))
        announcer.announce(signals.job_finished, job.kind, **named)
    elif status == "pending" and isinstance(outcome, RetryLater):
        logger.warning(
            "job %d %s: attempt %d of %d failed, again in %.1f s%s",
            job.id, job.kind, job.attempt, job.max_attempts, outcome.delay, said, extra=extra(job),
        )  # fmt: skip
        announcer.announce(signals.job_retried, job.kind, **named)
    elif status in ("dead", "failed"):
        logger.error(
            "job %d %s: %s after attempt %d of %d%s",
            job.id,
            job.kind,
            status,
            job.attempt,
            job.max_attempts,
            said,
            extra=extra(job),
        )
        announcer.announce(signals.job_dead, job.kind, **named)
    else:
        what = "released" if isinstance(outcome, Release) else "snoozed" if status == "pending" else status
        logger.info("job %d %s: %s", job.id, job.kind, what, extra=extra(job))
