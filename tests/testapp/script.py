"""The language of the scripted handlers: what a run can do, one step after the other.

A step is ``[verb, *arguments]``, plain JSON, so that it travels in a payload::

    scripted.enqueue(steps=[["note", "hello"], ["sleep", 0.2], ["raise", "ValueError", "boom"]])

Each run records ``start`` and, when it ends in any way that Python notices, ``end`` with how: ``returned`` or the name
of the exception's class. ``["audit", name]`` records more. See `VERBS` for all, and their functions for what they do.

A run need not wait for a duration when it can wait for an event: ``["gate", number]`` stops until the test opens the
gate (see `closed_gate`), and records ``at gate`` first.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import hashlib
import multiprocessing
import os
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from django.db import DatabaseError, connection, transaction
from django.utils import timezone, translation

import pgjobs
from pgjobs.api.context import JobContext

from . import audit
from .models import Audit, Note

Steps = Sequence[Sequence[Any]]


class Returned(BaseException):
    """How ``["return", …]`` leaves a run from anywhere."""

    def __init__(self, value: object) -> None:
        self.value = value


class Run:
    """One run of a script."""

    def __init__(self, ctx: JobContext | None) -> None:
        self.ctx = ctx
        self.forked: Any = None

    def play(self, steps: Steps) -> object:
        """Do the steps; the value of ``return``, else None. What a step raises is raised."""
        with self._recorded():
            for verb, *arguments in steps:
                VERBS[verb](self, *arguments)
        return self.result

    async def aplay(self, steps: Steps) -> object:
        """The same in a coroutine: ``sleep``, ``forever`` and ``until_cancelled`` are awaited, the rest is quick."""
        with self._recorded():
            for verb, *arguments in steps:
                await (AWAITED[verb](self, *arguments) if verb in AWAITED else _wrapped(VERBS[verb], self, *arguments))
        return self.result

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[None]:
        self.result: object = None
        how = "returned"
        audit.record("start", self.ctx)
        try:
            yield
        except Returned as returned:
            self.result = returned.value
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            audit.record("end", self.ctx, how)


async def _wrapped(step: Callable[..., Any], run: Run, *arguments: Any) -> None:
    step(run, *arguments)


# Ways to end ---------------------------------------------------------------------------------------------------------


def return_(run: Run, value: object = None) -> NoReturn:
    """End well, with a value that JSON holds."""
    raise Returned(value)


def return_odd(run: Run, name: str) -> NoReturn:
    """End well, with a value that JSON cannot hold, or holds only mended; by its name in `ODD_VALUES`."""
    raise Returned(ODD_VALUES[name]())


def raise_(run: Run, name: str = "ValueError", text: str = "boom", times: int = 1) -> NoReturn:
    """Raise a built-in exception, or one of `Flaky` and `Hopeless`, with a text repeated ``times``."""
    known = {"Flaky": Flaky, "Hopeless": Hopeless}
    kind = known.get(name) or getattr(__import__("builtins"), name)
    raise kind(text * times)


def raise_odd(run: Run, name: str) -> NoReturn:
    """Raise an exception that is hard to write down; by its name in `ODD_ERRORS`."""
    ODD_ERRORS[name]()
    raise AssertionError("not reached")


def retry(run: Run, after: float | None = None, reason: str = "") -> NoReturn:
    raise pgjobs.Retry(reason, after=after)


def snooze(run: Run, seconds: float = 0, reason: str = "") -> NoReturn:
    raise pgjobs.Snooze(seconds, reason)


def fail(run: Run, reason: str = "") -> NoReturn:
    raise pgjobs.Fail(reason)


def cancel(run: Run, reason: str = "") -> NoReturn:
    raise pgjobs.Cancel(reason)


def kill(run: Run, name: str = "SIGKILL") -> None:
    """Send a signal to the own process."""
    os.kill(os.getpid(), signal.Signals[name])


def sys_exit(run: Run, code: int = 3) -> NoReturn:
    sys.exit(code)


def os_exit(run: Run, code: int = 3) -> NoReturn:
    os._exit(code)


def segfault(run: Run) -> None:
    """Read where nothing is."""
    ctypes.string_at(0)


# Ways to take time ---------------------------------------------------------------------------------------------------


def sleep(run: Run, seconds: float) -> None:
    """Work for so long, in a call that lets go of the interpreter lock."""
    time.sleep(seconds)


def spin(run: Run, seconds: float = 3600) -> None:
    """Work for so long in Python code."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def deaf(run: Run, seconds: float = 3600) -> None:
    """Work for so long and swallow whatever is raised meanwhile."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with contextlib.suppress(BaseException):
            time.sleep(0.01)


def regex(run: Run) -> None:
    """Hold the interpreter lock in C code that never ends."""
    re.match(r"(a+)+$", "a" * 64 + "b")


def pbkdf2(run: Run, iterations: int = 2_000_000_000) -> None:
    """Work in C code without the interpreter lock; nothing interrupts it."""
    hashlib.pbkdf2_hmac("sha256", b"secret", b"salt", iterations)


def block(run: Run) -> None:
    """Wait for ever for a lock, which nothing interrupts."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def pg_sleep(run: Run, seconds: float = 3600) -> None:
    """Wait on the server, in the handler's own connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [seconds])


def gate(run: Run, number: int) -> None:
    """Record ``at gate``, and wait until nobody holds the gate closed."""
    with audit.connect() as mine:
        audit.record("at gate", run.ctx, number)
        mine.execute("SELECT pg_advisory_lock_shared(%s, %s)", [GATES, number])


def until_cancelled(run: Run, seconds: float = 30, then: str = "return") -> None:
    """Work until the context says that the job is cancelled; then end: ``return``, ``raise`` or ``cancel``."""
    until = time.monotonic() + seconds
    while run.ctx is None or not run.ctx.cancelled:
        if time.monotonic() > until:
            raise TimeoutError("never cancelled")
        time.sleep(0.005)
    audit.record("saw cancel", run.ctx)
    {"return": return_, "raise": raise_, "cancel": cancel}[then](run)


def until_lost(run: Run, seconds: float = 30) -> None:
    """Work until the job is no longer this worker's."""
    until = time.monotonic() + seconds
    while run.ctx is None or run.ctx.still_owned():
        if time.monotonic() > until:
            raise TimeoutError("never lost")
        time.sleep(0.02)
    audit.record("saw lost", run.ctx)


async def asleep(run: Run, seconds: float) -> None:
    await asyncio.sleep(seconds)


async def aforever(run: Run) -> None:
    await asyncio.Event().wait()


async def auntil_cancelled(run: Run, seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while run.ctx is None or not run.ctx.cancelled:
            await asyncio.sleep(0.005)
    audit.record("saw cancel", run.ctx)


# Things to do, well-behaved ------------------------------------------------------------------------------------------


def record(run: Run, name: str, data: object = None) -> None:
    audit.record(name, run.ctx, data)


def note(run: Run, text: str) -> None:
    """Write a row with the ORM, in whatever transaction there is."""
    Note.objects.create(text=text, job_id=run.ctx.id if run.ctx else None)


def progress(run: Run, done: int, total: int | None = None, text: str = "") -> None:
    assert run.ctx is not None
    run.ctx.progress(done, total, text)


def look_for_others(run: Run) -> None:
    """Record which processes that began this job earlier are still there."""
    assert run.ctx is not None
    earlier = Audit.objects.filter(job_id=run.ctx.id, event="start").exclude(pid=os.getpid())
    audit.record("saw alive", run.ctx, [pid for pid in earlier.values_list("pid", flat=True) if _exists(pid)])


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def log(run: Run, level: int, text: str) -> None:
    assert run.ctx is not None
    run.ctx.log.log(level, text)


def enqueue(run: Run, kind: str, payload: dict[str, Any] | None = None, options: dict[str, Any] | None = None) -> None:
    """Enqueue another job, and record its id."""
    handle = pgjobs.enqueue(kind, payload or {}, **(options or {}))
    audit.record("enqueued", run.ctx, handle.id)


def see(run: Run) -> None:
    """Record what this run finds in its thread, its connection and its session."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('search_path'), current_setting('TimeZone'), current_setting('statement_timeout'),"
            " current_setting('role'), pg_backend_pid(),"
            " (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory')"
        )
        search_path, zone, statement_timeout, role, pid, locks = cursor.fetchone()
    found = {
        "search_path": search_path,
        "session_zone": zone,
        "statement_timeout": statement_timeout,
        "role": role,
        "backend": pid,
        "advisory_locks": locks,
        "autocommit": connection.get_autocommit(),
        "in_atomic_block": connection.in_atomic_block,
        "language": translation.get_language(),
        "timezone": timezone.get_current_timezone_name(),
        "variable": VARIABLE.get(),
    }
    audit.record("saw", run.ctx, found)


# Things to leave behind ----------------------------------------------------------------------------------------------


def leave_autocommit_off(run: Run, text: str = "left open") -> None:
    """Leave a transaction open, with an effect in it."""
    transaction.set_autocommit(False)
    Note.objects.create(text=text)


def leave_begin(run: Run) -> None:
    """Leave a transaction that Django does not know of."""
    connection.ensure_connection()
    connection.connection.execute("BEGIN")
    connection.connection.execute("SELECT 1")


def leave_broken(run: Run) -> None:
    """Leave a transaction that the server has given up."""
    connection.ensure_connection()
    connection.connection.execute("BEGIN")
    with contextlib.suppress(Exception):
        connection.connection.execute("SELECT 1/0")


def leave_atomic(run: Run) -> None:
    """Enter ``atomic()`` and never leave it."""
    transaction.atomic().__enter__()


def break_atomic(run: Run) -> None:
    """Break a transaction inside of ``atomic()`` and swallow the error."""
    with contextlib.suppress(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        with contextlib.suppress(DatabaseError):
            cursor.execute("SELECT 1/0")
        cursor.execute("SELECT 1")


def raise_on_commit(run: Run) -> None:
    """Commit a transaction with a callback that raises."""

    def callback() -> None:
        raise RuntimeError("a callback raised")

    with transaction.atomic():
        transaction.on_commit(callback)
        Note.objects.create(text="before the callback")


def sql(run: Run, statement: str) -> None:
    """Run a statement on the handler's connection, for example ``SET search_path TO nowhere``."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def close(run: Run) -> None:
    connection.close()


def close_below(run: Run) -> None:
    """Close the connection without telling Django."""
    connection.ensure_connection()
    connection.connection.close()


def terminate(run: Run) -> None:
    """Have the server end the handler's own connection."""
    with contextlib.suppress(DatabaseError), connection.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(pg_backend_pid())")


def activate(run: Run, language: str = "de", zone: str = "Asia/Kathmandu") -> None:
    """Leave another language, time zone and context variable in the thread."""
    translation.activate(language)
    timezone.activate(zone)
    VARIABLE.set("left behind")


def spawn(run: Run, seconds: float = 3600) -> None:
    """Leave a thread that goes on, and does not keep the process alive."""
    threading.Thread(target=time.sleep, args=(seconds,), daemon=True, name="left behind").start()


def fork(run: Run, what: str) -> None:
    """Fork a process that writes notes beside us (``note``), sleeps until ``end_fork``, or returns from the handler."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there are threads, as in any handler that forks
        if what == "return":
            pid = os.fork()
            raise Returned("the child's" if pid == 0 else os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        target, arguments = (note, (Run(None), "forked")) if what == "note" else (time.sleep, (3600,))
        run.forked = multiprocessing.get_context("fork").Process(target=target, args=arguments)
        Note.objects.exists()  # so that there is a connection to inherit
        run.forked.start()
    if what == "note":
        for _ in range(50):
            Note.objects.exists()
        run.forked.join()
        raise Returned(run.forked.exitcode)


def end_fork(run: Run) -> None:
    """SIGTERM to what ``fork`` started, and return its exit code."""
    run.forked.terminate()
    run.forked.join(5)
    raise Returned(run.forked.exitcode)


VERBS: dict[str, Callable[..., None]] = {
    "fork": fork,
    "end_fork": end_fork,
    "return": return_,
    "return_odd": return_odd,
    "raise": raise_,
    "raise_odd": raise_odd,
    "retry": retry,
    "snooze": snooze,
    "fail": fail,
    "cancel": cancel,
    "kill": kill,
    "sys_exit": sys_exit,
    "os_exit": os_exit,
    "segfault": segfault,
    "sleep": sleep,
    "spin": spin,
    "deaf": deaf,
    "regex": regex,
    "pbkdf2": pbkdf2,
    "block": block,
    "pg_sleep": pg_sleep,
    "gate": gate,
    "until_cancelled": until_cancelled,
    "until_lost": until_lost,
    "audit": record,
    "note": note,
    "progress": progress,
    "look_for_others": look_for_others,
    "log": log,
    "enqueue": enqueue,
    "see": see,
    "leave_autocommit_off": leave_autocommit_off,
    "leave_begin": leave_begin,
    "leave_broken": leave_broken,
    "leave_atomic": leave_atomic,
    "break_atomic": break_atomic,
    "raise_on_commit": raise_on_commit,
    "sql": sql,
    "close": close,
    "close_below": close_below,
    "terminate": terminate,
    "activate": activate,
    "spawn": spawn,
}


async def anote(run: Run, text: str) -> None:
    await Note.objects.acreate(text=text, job_id=run.ctx.id if run.ctx else None)


async def stray(run: Run) -> None:
    """Leave a task that never ends; it records when it is cancelled."""

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            audit.record("stray cancelled", run.ctx)
            raise

    _strays.append(asyncio.create_task(wait()))
    await asyncio.sleep(0)


_strays: list[asyncio.Task[None]] = []

AWAITED: dict[str, Callable[..., Any]] = {
    "sleep": asleep,
    "forever": aforever,
    "note": anote,
    "stray": stray,
    "until_cancelled": auntil_cancelled,
}


# Gates ---------------------------------------------------------------------------------------------------------------

GATES = 20_260_101
"""The first key of the advisory locks that are gates."""

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("testapp_variable", default="clean")


@contextlib.contextmanager
def closed_gate(number: int = 1) -> Iterator[Callable[[], None]]:
    """Hold a gate closed, for runs in any process; yields what opens it. At the end it is open."""
    with audit.connect() as holder:
        holder.execute("SELECT pg_advisory_lock(%s, %s)", [GATES, number])

        def open_gate() -> None:
            holder.execute("SELECT pg_advisory_unlock_all()")

        yield open_gate


# Odd values and errors -----------------------------------------------------------------------------------------------


class Odd(Exception):
    """Base of the exceptions here."""


class Flaky(Odd):
    """What `picky` retries."""


class Hopeless(Odd):
    """What `picky` discards."""


class NeedsThree(Odd):
    """Cannot be rebuilt from its arguments."""

    def __init__(self, one: int, two: int, three: int) -> None:
        super().__init__("needs three")


class StrRaises(Odd):
    def __str__(self) -> str:
        raise RuntimeError("__str__ raised")


class ReprRaises(Odd):
    def __repr__(self) -> str:
        raise RuntimeError("__repr__ raised")

    __str__ = __repr__


class StrExits(Odd):
    def __str__(self) -> str:
        raise SystemExit("__str__ wants out")


def _self_holding() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def _raise(error: BaseException) -> NoReturn:
    raise error


def _cyclic() -> NoReturn:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def _deep(n: int = 0) -> NoReturn:
    _deep(n + 1)
    raise AssertionError("not reached")


ODD_VALUES: dict[str, Callable[[], object]] = {
    "object": object,
    "set": lambda: {1, 2},
    "generator": lambda: (n for n in range(3)),
    "self": _self_holding,
    "nul": lambda: {"a\x00": "b\x00c"},
    "surrogate": lambda: "\ud800",
    "nan": lambda: float("nan"),
    "large": lambda: "x" * 20_000_000,
    "deep": lambda: _nested(100_000),
    "bytes": lambda: b"bytes",
    "falsy": lambda: False,
}


def _nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


ODD_ERRORS: dict[str, Callable[[], NoReturn]] = {
    "nul": lambda: _raise(ValueError("a\x00b")),
    "surrogate": lambda: _raise(ValueError("\ud800")),
    "large": lambda: _raise(ValueError("x" * 50_000_000)),
    "str_raises": lambda: _raise(StrRaises()),
    "repr_raises": lambda: _raise(ReprRaises()),
    "str_exits": lambda: _raise(StrExits()),
    "nul_name": lambda: _raise(type("Na\x00me", (Exception,), {})("odd name")),
    "needs_three": lambda: _raise(NeedsThree(1, 2, 3)),
    "local_class": lambda: _raise(type("Local", (Exception,), {})("local")),
    "cyclic_cause": _cyclic,
    "deep": lambda: _deep(),
    "group": lambda: _raise(ExceptionGroup("many", [ValueError(str(n)) for n in range(10_000)])),
    "base": lambda: _raise(type("OwnBase", (BaseException,), {})("a BaseException")),
    "keyboard": lambda: _raise(KeyboardInterrupt()),
    "stop_iteration": lambda: _raise(StopIteration()),
    "timeout": lambda: _raise(TimeoutError("the handler's own")),
}
