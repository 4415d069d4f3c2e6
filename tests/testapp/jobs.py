"""Handlers. The scripted ones can end every way: their payload says how (see script.py)."""

from __future__ import annotations

from typing import Any

from pgjobs import Fixed, JobContext, job

from . import releases as releases
from .models import Note
from .script import Flaky, Hopeless, Run, Steps


def steps_of(ctx: JobContext | None, steps: Steps, then: list[Steps] | None) -> Steps:
    """The script of this attempt: ``steps`` for the first, ``then[0]`` for the second, …; the last one goes on."""
    scripts = [steps, *(then or [])]
    return scripts[min(ctx.attempt if ctx else 1, len(scripts)) - 1]


@job
def scripted(ctx: JobContext, steps: Steps = (), then: list[Steps] | None = None) -> Any:
    """Do what ``steps`` say; the second attempt does ``then[0]``, and so on. Default options."""
    return Run(ctx).play(steps_of(ctx, steps, then))


@job(backoff=Fixed(0, jitter=0))
def scripted_now(ctx: JobContext, steps: Steps = (), then: list[Steps] | None = None) -> Any:
    """The same, retried without waiting."""
    return Run(ctx).play(steps_of(ctx, steps, then))


@job(atomic=True, backoff=Fixed(0, jitter=0))
def scripted_atomic(ctx: JobContext, steps: Steps = (), then: list[Steps] | None = None) -> Any:
    """The same, in one transaction with the record of its success."""
    return Run(ctx).play(steps_of(ctx, steps, then))


@job(backoff=Fixed(0, jitter=0))
async def scripted_async(ctx: JobContext, steps: Steps = (), then: list[Steps] | None = None) -> Any:
    """The same as a coroutine."""
    return await Run(ctx).aplay(steps_of(ctx, steps, then))


@job(retry_on=(Flaky,), discard_on=(Hopeless,), backoff=Fixed(0, jitter=0), max_attempts=3)
def picky(ctx: JobContext, steps: Steps = (), then: list[Steps] | None = None) -> Any:
    """The same, which retries only Flaky and discards Hopeless."""
    return Run(ctx).play(steps_of(ctx, steps, then))


@job(queue="sums", priority=7, max_attempts=3, timeout=45, aliases=("plus",))
def add(a: int, b: int = 1) -> int:
    """A plain function with options of its own."""
    return a + b


@job
def write_note(text: str) -> None:
    """One effect in the database."""
    Note.objects.create(text=text)


@job
def echo(**values: Any) -> dict[str, Any]:
    """Takes anything, and returns it."""
    return values
