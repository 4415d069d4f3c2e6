"""Who uses the queue: enqueuers and an operator. They meet the troubles too, and go on."""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from django.db import DatabaseError, InterfaceError, connection, connections, transaction
from django.utils import timezone

from pgjobs import enqueue, enqueue_many, store

from . import jobs
from .history import Wish

AWAY = (DatabaseError, InterfaceError, psycopg.Error, OSError)
KEYS = 6
ENOUGH = 300
"""So many due jobs, and enqueuers wait: the workers shall have a chance to drain."""

_batches = itertools.count(1)


class RolledBack(Exception):
    """An enqueuer that changed its mind."""


class Known:
    """What the actors know, and the database might not."""

    def __init__(self) -> None:
        self.created: dict[int, int] = {}
        self.wishes: list[Wish] = []
        self.pauses: list[tuple[str, float, float]] = []
        self.done: Counter[str] = Counter()


class Actor:
    """A thread that repeats a step until it is told to stop."""

    def __init__(self, seed: int, known: Known) -> None:
        self.rng = random.Random(seed)
        self.known = known
        self.failed = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join(60)

    def step(self) -> float:
        """Do something; how long to pause."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                pause = self.step()
            except AWAY:
                connections.close_all()
                pause = 0.2
            except Exception as error:
                self.failed = f"{type(self).__name__}: {type(error).__name__}: {error}"
                return
            self._over.wait(pause)
        connections.close_all()


class Enqueuer(Actor):
    """One transaction after the other; each leaves a row of its own, so that whether it committed is never in doubt."""

    def step(self) -> float:
        with connection.cursor() as cursor:
            cursor.execute("SET application_name = 'chaos enqueuer'")
            cursor.execute("SELECT count(*) FROM pgjobs_job WHERE status = 'pending' AND run_after <= now()")
            if cursor.fetchone()[0] > ENOUGH:
                return 0.3
        batch = next(_batches)
        with contextlib.suppress(RolledBack), transaction.atomic():
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO chaos_batch VALUES (%s)", [batch])
            if self.rng.random() < 0.1:
                with contextlib.suppress(RolledBack), transaction.atomic():  # a savepoint that goes, in one that stays
                    self.known.created.update(self._some(-batch))
                    raise RolledBack
            self.known.created.update(self._some(batch))
            if self.rng.random() < 0.12:
                raise RolledBack
        return self.rng.uniform(0, 0.12)

    def _some(self, batch: int) -> dict[int, int]:
        """Enqueue a few; the ids that were created."""
        if self.rng.random() < 0.2:
            prepared = [
                getattr(jobs, kind).prepare(**payload)
                for kind, payload, _ in (self._any(batch) for _ in range(self.rng.randint(2, 25)))
            ]
            return {handle.id: batch for handle in enqueue_many(prepared) if handle.created}
        kind, payload, options = self._any(batch)
        at = time.time()
        handle = enqueue(kind, payload, **options)
        if handle.action == "rerun":
            self.known.wishes.append(Wish(batch=batch, kind=kind, key=options["dedupe_key"], at=at))
        self.known.done[f"enqueue: {handle.action}"] += 1
        return {handle.id: batch} if handle.created else {}

    def _any(self, batch: int) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """A kind, its payload, and options."""
        rng = self.rng
        options: dict[str, Any] = {}
        if rng.random() < 0.15:
            options["priority"] = rng.randint(-100, 100)
        if rng.random() < 0.1:
            options["run_after"] = rng.uniform(0.1, 4)
        [kind] = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))
        payload: dict[str, Any] = {"batch": batch}
        if kind in ("quick", "effect", "coroutine"):
            payload["ms"] = rng.choice((0, 0, 1, 5, 20, 100, 800))
        elif kind == "patient":
            payload["ms"] = rng.choice((2000, 5000, 9000))
        elif kind == "failing":
            payload["times"] = rng.randint(1, 3)
        elif kind == "hanging":
            payload["deaf"] = rng.random() < 0.3
        elif kind == "deadly":
            payload["how"] = rng.choice(jobs.DEADLY)
        elif kind == "keyed":
            payload["ms"] = rng.choice((0, 10, 300, 1500))
            options["priority"] = 50  # soon reserved: then a rerun is more than a keep
            options["dedupe_key"] = f"key-{rng.randrange(KEYS)}"
            options["on_conflict"] = rng.choice(("keep", "replace", "rerun", "rerun"))
        return kind, payload, options


WEIGHTS = {
    "quick": 40,
    "pausable": 5,
    "keyed": 25,
    "patient": 1.2,
    "effect": 20,
    "coroutine": 15,
    "failing": 5,
    "snoozing": 5,
    "hanging": 0.4,
    "deadly": 0.4,
}
"""How often each kind is enqueued."""


class Operator(Actor):
    """Cancels what is pending or runs, retries what is dead, pauses a queue when told to."""

    def __init__(self, seed: int, known: Known) -> None:
        super().__init__(seed, known)
        self._wanted_pause = 0.0

    def pause_for(self, seconds: float) -> None:
        """Soon."""
        self._wanted_pause = seconds

    def step(self) -> float:
        with connection.cursor() as cursor:
            cursor.execute("SET application_name = 'chaos operator'")
        if self._wanted_pause:
            seconds, self._wanted_pause = self._wanted_pause, 0.0
            self._pause(seconds)
            return 0.0  # the session may be another one now, without its name
        if self.rng.random() < 0.7:
            some = self._ids("status IN ('pending', 'reserved')", 2)
            for outcome in store.cancel(connection, some, by="chaos").values():
                self.known.done[f"cancel: {outcome}"] += 1
        else:
            some = self._ids("status = 'dead'", 2)
            for outcome, _ in store.requeue(connection, some).values():
                self.known.done[f"requeue: {outcome}"] += 1
        return self.rng.uniform(0.2, 0.8)

    def _ids(self, condition: str, most: int) -> list[int]:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT id FROM pgjobs_job WHERE {condition} ORDER BY random() LIMIT %s", [most])  # noqa: S608
            return [id_ for (id_,) in cursor.fetchall()]

    def _pause(self, seconds: float) -> None:
        store.pause(connection, "queue", "pausable", by="chaos", reason="to see what happens")
        began = time.time()
        self._over.wait(seconds)
        ended = time.time()  # from here on the end may be committed, whether we hear of it or not
        self.known.pauses.append(("pausable", began, ended))
        insist(lambda: store.resume(connection, "queue", "pausable"))


def insist(ask: Callable[[], object], seconds: float = 60) -> None:
    """Try until the database does it."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            ask()
            return
        except AWAY:
            connections.close_all()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def hurry(ids: Sequence[int]) -> None:
    """Let pending jobs be due now: nobody wants to wait for the backoff of a worker that was lost twice."""
    store.reschedule(connection, ids, run_after=timezone.now())
