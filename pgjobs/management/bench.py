"""Measures this project's own server: what ``manage.py jobs_bench`` reports.

The jobs are of a kind and in a queue that exist only for one run, at the lowest priority; the worker here knows no other kind,
serves no other queue, and does none of the work that workers share (reaping, expiry, retention). All is removed at the end.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import random
import secrets
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.db import connections, models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Max, Min

from ..api.enqueueing import enqueue_many
from ..api.jobs import Job as Handler
from ..api.jobs import job
from ..api.registry import registry
from ..conf import Settings
from ..models import Job
from ..states import LIVE
from ..worker.connection import dedicated
from ..worker.loop import Loop
from ..worker.process import Options, Worker

LEASE = 300.0
"""Seconds for which jobs are held here: nobody's heartbeat extends that."""

WARM_UP = 5
"""Picked-up jobs that are not counted."""

PAUSE = 0.05
"""Seconds between jobs that are to be picked up by an idle worker, and up to half as much again."""


@dataclass(frozen=True)
class Figure:
    """One measured thing beside its floor or limit in bare SQL (None: not measured). ``unit`` is "/s" or "ms"."""

    name: str
    unit: str
    pgjobs: float
    bare: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if not self.bare else self.pgjobs / self.bare


class WorkerDied(RuntimeError):
    """A process that measures has ended."""


class Bench:
    """One run, as a context: at its end, however it comes, the workers are gone and the rows deleted."""

    def __init__(self, settings: Settings) -> None:
        self.name = f"pgjobs-bench-{secrets.token_hex(4)}"
        """Both kind and queue."""
        self._settings = dataclasses.replace(settings, LEASE=max(settings.LEASE, LEASE), WATCHDOG=None)
        self._alias = settings.DATABASE
        self._handler: Handler[Any, Any] = job(kind=self.name, queue=self.name, priority=-100)(measured)
        self._send = self._handler.using(database=self._alias)
        self._first_id = 0
        self._children: list[int] = []
        self._alive: tuple[int, int] | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop_workers()
        finally:
            registry.remove(self._handler.handler)
            self._delete()

    @property
    def _rows(self) -> models.QuerySet[Job]:
        """This run's rows, of any status: by the primary key, however large the table is."""
        every = Job._default_manager.using(self._alias)
        return every.filter(id__gte=self._first_id, queue=self.name, kind=self.name)

    # --- what is measured, in the order of a run ---

    def one_by_one(self, calls: int) -> float:
        """``enqueue()`` a second, each in a transaction of its own."""
        self._first_id = self._send.enqueue().id  # connected, and warm
        began = time.perf_counter()
        for _ in range(calls):
            self._send.enqueue()
        return calls / (time.perf_counter() - began)

    def bulk(self, count: int) -> float:
        """Jobs of one ``enqueue_many`` a second."""
        began = time.perf_counter()
        enqueue_many((self._send.prepare() for _ in range(count)), using=self._alias)
        return count / (time.perf_counter() - began)

    def drain(self, processes: int) -> float:
        """Jobs a second that workers run, of those that wait now, from the first claim to the last recorded end.

        The workers go on until :meth:`stop_workers`.
        """
        waiting = self._rows.filter(status="pending").count()
        self._start_workers(processes)
        self._wait(lambda: not self._rows.filter(status__in=LIVE).exists())
        times = self._rows.filter(status="done").aggregate(began=Min("started_at"), ended=Max("finished_at"))
        seconds: float = (times["ended"] - times["began"]).total_seconds()
        return waiting / seconds

    def pickup(self, samples: int) -> list[float]:
        """Seconds from the call of ``enqueue()`` to the start of the handler, for jobs that come one by one."""
        time.sleep(0.5)  # the worker falls asleep
        first = 0
        for n in range(WARM_UP + samples):
            handle = self._send.enqueue(sent=time.monotonic())
            first = handle.id if n == WARM_UP else first
            self._check()
            time.sleep(PAUSE * random.uniform(1, 1.5))
        self._wait(lambda: not self._rows.filter(status__in=LIVE).exists())
        counted = self._rows.filter(id__gte=first, status="done")
        return [result - payload["sent"] for payload, result in counted.values_list("payload", "result")]

    # --- workers ---

    def _start_workers(self, processes: int) -> None:
        self._alive = os.pipe()
        for _ in range(processes):
            connections.close_all()  # processes must not share a socket
            if pid := os.fork():
                self._children.append(pid)
            else:
                self._work()

    def _work(self) -> None:
        """In a process of its own, which never returns."""
        code = 70
        try:
            assert self._alive is not None  # noqa: S101
            os.close(self._alive[1])
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all: the command says when to end
            for handler in registry.handlers():
                if handler is not self._handler.handler:
                    registry.remove(handler)
            options = Options(queues=[self.name], own_process=True)
            worker = OnlyOurs(self._settings, options, lambda line: None, supervisor=self._alive[0])
            signal.signal(signal.SIGTERM, lambda *_: worker.stop())
            code = worker.run()
        finally:
            os._exit(code)

    def stop_workers(self) -> None:
        """End them: gracefully, or else by force."""
        for pid in self._children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 10
        while self._children:
            self._bury()
            if time.monotonic() > deadline:
                for pid in self._children:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        for end in self._alive or ():
            os.close(end)
        self._alive = None

    def _bury(self) -> bool:
        """Take note of those that have ended; whether any has."""
        ended = [pid for pid in self._children if os.waitpid(pid, os.WNOHANG)[0]]
        self._children = [pid for pid in self._children if pid not in ended]
        return bool(ended)

    def _wait(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._check()
            time.sleep(0.05)

    def _check(self) -> None:
        """Raise WorkerDied when no figure can come of this run."""
        if self._bury():
            raise WorkerDied("a worker of the bench has died; if it could say why, that stands above")

    def _delete(self) -> None:
        """All rows of this run, some thousand at a time: no long transaction, no lock that others wait for."""
        while ids := list(self._rows.values_list("id", flat=True)[:5000]):
            self._rows.filter(id__in=ids)._raw_delete(self._alias)


class OnlyOurs(Worker):
    """A worker that keeps nothing: no reaping, expiry or retention. Its leases outlast the run."""

    def __init__(self, settings: Settings, *args: Any, **more: Any) -> None:
        super().__init__(settings, *args, **more)
        self._keeper.loop = Loop("keeper", _keep_nothing, dedicated(settings.DATABASE, "keeper"), self._died)


def _keep_nothing(_: BaseDatabaseWrapper) -> float:
    return 3600.0


def measured(sent: float | None = None) -> float | None:
    """The handler: nothing at all, or when it started."""
    return None if sent is None else time.monotonic()


def run(
    settings: Settings, *, jobs: int, samples: int, processes: int, floor: Any, say: Callable[[str], None]
) -> Iterator[Figure]:
    """Measure, and yield each figure as it is known. ``floor`` is a :class:`~pgjobs.management.floor.Floor`, or None."""
    calls = min(1000, max(10, jobs // 20))
    with Bench(settings) as bench:
        say(
            f"jobs of the kind and queue {bench.name!r} on the database alias {settings.DATABASE!r}; removed at the end"
        )
        yield Figure("enqueue(), a transaction each", "/s", bench.one_by_one(calls), floor and floor.one_by_one(calls))
        yield Figure(f"enqueue_many(), {jobs:,} jobs", "/s", bench.bulk(jobs), floor and floor.bulk(jobs))
        name = f"drain, {processes} process{'es' * (processes > 1)}"
        drained = bench.drain(processes)
        ours = sorted(bench.pickup(samples))
        bench.stop_workers()
        yield Figure(name, "/s", drained, floor and floor.drain())
        bare = sorted(floor.pickup(samples)) if floor else []
        for percent in (50, 95):
            yield Figure(
                f"pick-up p{percent}",
                "ms",
                percentile(ours, percent) * 1000,
                percentile(bare, percent) * 1000 if bare else None,
            )


def percentile(ordered: list[float], percent: int) -> float:
    """Of values in order; the median is the middle."""
    if percent == 50 or len(ordered) < 3:
        return statistics.median(ordered)
    return statistics.quantiles(ordered, n=100, method="inclusive")[percent - 1]
