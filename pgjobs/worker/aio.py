"""The event loop that runs ``async def`` handlers: one thread for a process, many jobs at once.

Django's asynchronous queries all run in one thread (asgiref's), so that they share one connection; it is kept clean like those
of the executor's threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

from asgiref.sync import sync_to_async

from ..api.context import current_id, restored
from ..api.registry import Handler
from . import capture, forked, hygiene
from .held import Held, HeldJobs
from .outcome import Finish, Outcome, weight
from .running import Running

logger = logging.getLogger("pgjobs")

STRAYS = 1.0
"""Seconds that the tasks which a handler left behind may take to be cancelled."""

OWN_FRAMES = 1
"""Frames of this module that a handler's traceback begins with."""

_tasks: contextvars.ContextVar[weakref.WeakSet[asyncio.Task[Any]] | None] = contextvars.ContextVar(
    "pgjobs_tasks", default=None
)
"""The tasks that were created by the job of this context."""


def _make_task(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
    task = asyncio.Task(coro, loop=loop, **options)
    if (created := _tasks.get()) is not None:
        created.add(task)
    return task


class _Place:
    """Where one job runs: its task."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.task: asyncio.Task[Any] | None = None

    def interrupt(self, held: Held) -> None:
        """Cancel the handler's task, and nothing else."""
        if self.task is not None:
            self._loop.call_soon_threadsafe(self.task.cancel)


class AsyncExecutor:
    """One loop in one thread; started with the first worker that has an ``async def`` handler."""

    def __init__(
        self,
        held: HeldJobs,
        running: Running,
        *,
        ended: Callable[[Held, Outcome, float], None],
        died: Callable[[str, BaseException], None],
    ) -> None:
        self._held = held
        self._running = running
        self._ended = ended
        self._died = died
        self._generation = forked.generation
        self._loop: asyncio.AbstractEventLoop
        self._ready = threading.Event()
        self._sessions: dict[str, Any] = {}
        self._thread = threading.Thread(target=self._run, name="pgjobs-loop", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._loop = asyncio.new_event_loop()
        self._loop.set_task_factory(_make_task)  # type: ignore[arg-type]  # typeshed wants every keyword of every version
        self._thread.start()

    def submit(self, held: Held) -> None:
        """Start a job, in a context of its own."""
        self._loop.call_soon_threadsafe(self._spawn, held)

    def stop(self, timeout: float) -> bool:
        """End; whether it did within ``timeout`` seconds."""
        if self._thread.is_alive() and self._ready.wait(timeout):  # a loop that has not begun must not be stopped
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            asyncio.set_event_loop(self._loop)
            self._sessions = self._loop.run_until_complete(sync_to_async(hygiene.adopt_thread, thread_sensitive=True)())
            self._ready.set()
            self._turn()
            self._loop.run_until_complete(sync_to_async(hygiene.leave_thread, thread_sensitive=True)())
            self._loop.close()
        except BaseException as e:  # noqa: BLE001
            self._died("event loop", e)

    def _turn(self) -> None:
        """Run the loop until it is stopped; asyncio lets an exit that a task or a callback raises end the loop as well."""
        while True:
            try:
                return self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt) as e:
                logger.warning("%s was raised in the event loop; only the task that raised it ends", type(e).__name__)

    def _spawn(self, held: Held) -> None:
        self._loop.create_task(self._run_one(held), context=contextvars.Context()).add_done_callback(self._check)

    def _check(self, task: asyncio.Task[None]) -> None:
        """What runs one job never raises; should it, the process cannot be trusted."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._died("event loop", error)

    async def _run_one(self, held: Held) -> None:
        """The life of one job, from its start to its outcome."""
        place = _Place(self._loop)
        if not self._held.start(held, place):
            return  # released while it waited
        result = await self._outcome(held, place)
        took = self._held.end(held, returned=isinstance(result, Finish), weight=weight(result))
        if took is not None:
            self._ended(held, result, took)

    async def _outcome(self, held: Held, place: _Place) -> Outcome:
        handler = self._running.handler(held.job)
        capture.keeper.set(held)
        arguments = self._running.arguments(handler, held.job)
        if not isinstance(arguments, dict):
            return arguments
        current_id.set(held.job.id)
        self._running.starts(held.job)
        created: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        _tasks.set(created)
        try:
            if self._sessions:
                await sync_to_async(hygiene.before, thread_sensitive=True)()
            with restored(held.job.meta):
                args = (self._running.context(held),) if handler.takes_ctx else ()
                task = place.task = self._loop.create_task(self._handle(handler, args, arguments))
                await asyncio.wait({task})
            if task.cancelled():
                return self._running.raised(held, handler, asyncio.CancelledError(), skip=0)
            if (error := task.exception()) is not None:
                return self._running.raised(held, handler, error, skip=OWN_FRAMES)
            return self._running.returned(task.result())
        finally:
            if strays := [t for t in created if not t.done()]:
                for stray in strays:
                    stray.cancel()
                await asyncio.wait(strays, timeout=STRAYS)
            if self._sessions:
                await sync_to_async(hygiene.after, thread_sensitive=True)()

    async def _handle(self, handler: Handler, args: tuple[Any, ...], arguments: dict[str, Any]) -> object:
        try:
            return await handler.function(*args, **arguments)
        finally:
            if forked.generation != self._generation:
                forked.leave()
