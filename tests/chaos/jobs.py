"""Handlers that do a little of everything that hurts, and write down what they do.

``batch`` names the transaction that enqueued the job. No handler is told which run of its job this is but by ``ctx``.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import signal
import time
from collections.abc import Iterator

from django.db import connection

from pgjobs import JobContext, Snooze, job

from . import journal


@contextlib.contextmanager
def run(ctx: JobContext, batch: int) -> Iterator[None]:
    """The audit trail of one run: its start, and its end if Python notices it."""
    held = ctx._holder._held  # type: ignore[attr-defined]  # the lease is no business of handlers, but it is ours
    name = {"run": os.urandom(6).hex(), "job": ctx.id, "kind": ctx.kind, "attempt": ctx.attempt}
    how = "returned"
    journal.write("start", lease=held.job.lease, batch=batch, **name)
    try:
        yield
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        with contextlib.suppress(Exception):
            journal.write("end", lease=held.job.lease, how=how, **name)


@job
def quick(ctx: JobContext, batch: int, ms: int = 0) -> int:
    """Never fails by itself."""
    with run(ctx, batch):
        time.sleep(ms / 1000)
    return ms


@job(queue="pausable")
def pausable(ctx: JobContext, batch: int) -> None:
    """Its queue is paused now and then."""
    with run(ctx, batch):
        pass


@job
def keyed(ctx: JobContext, batch: int, ms: int = 0) -> None:
    """Enqueued with a dedupe key."""
    with run(ctx, batch):
        time.sleep(ms / 1000)


@job(queue="other")
def patient(ctx: JobContext, batch: int, ms: int) -> None:
    """Longer than GRACE: a deploy interrupts it."""
    with run(ctx, batch):
        until = time.monotonic() + ms / 1000
        while time.monotonic() < until:
            time.sleep(0.05)


@job(atomic=True)
def effect(ctx: JobContext, batch: int, ms: int = 0) -> None:
    """One row, in the transaction that records the success."""
    with run(ctx, batch), connection.cursor() as cursor:
        cursor.execute("INSERT INTO chaos_effect (job_id, attempt) VALUES (%s, %s)", [ctx.id, ctx.attempt])
        time.sleep(ms / 1000)
        cursor.execute("UPDATE chaos_effect SET attempt = attempt WHERE job_id = %s", [ctx.id])


@job
async def coroutine(ctx: JobContext, batch: int, ms: int = 0) -> None:
    with run(ctx, batch):
        await asyncio.sleep(ms / 1000)


@job(max_attempts=3)
def failing(ctx: JobContext, batch: int, times: int) -> None:
    """Raises in its first attempts."""
    with run(ctx, batch):
        if ctx.attempt <= times:
            raise ValueError(f"attempt {ctx.attempt} of {times} that fail")


@job
def snoozing(ctx: JobContext, batch: int) -> None:
    with run(ctx, batch):
        if random.random() < 0.6:
            raise Snooze(0.2)


@job(max_attempts=2, timeout=1)
def hanging(ctx: JobContext, batch: int, deaf: bool = False) -> None:
    """Runs past its time limit; deaf: and swallows what it is told."""
    with run(ctx, batch):
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(BaseException if deaf else ()):  # type: ignore[arg-type]
                time.sleep(0.05)


@job(max_attempts=2)
def deadly(ctx: JobContext, batch: int, how: str) -> None:
    """The end of its process: ``kill``, ``exit``, ``crash``, or ``freeze`` it with the interpreter lock held."""
    with run(ctx, batch):
        journal.write("deadly", how=how, job=ctx.id)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "exit":
            os._exit(3)
        elif how == "crash":
            ctypes.string_at(0)
        else:
            ctypes.PyDLL(None).sleep(120)


DEADLY = ("kill", "exit", "crash", "freeze")
