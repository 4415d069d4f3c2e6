"""The parent of the worker processes. It holds no database connection and starts no threads, so that it can always fork.

It starts processes, watches each through a page of shared memory, kills one that stands still, has an undertaker end what a dead
one held, starts a replacement, and passes signals on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import gc
import logging
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable

from django.db import connections

from ..conf import Settings
from ..exceptions import ConfigurationError
from . import forked
from .board import Board, Entry, State
from .child import Child, cause_of_death
from .claimer import MOST
from .ending import Ending
from .process import EX_CONFIG, EX_SOFTWARE, EX_TEMPFAIL, Options, Worker, worker_name
from .undertaker import GAVE_UP, SUSPECTS, undertake

logger = logging.getLogger("pgjobs")

LOOK = 0.25
"""Seconds between looks at the processes; the end of one is noticed at once."""

STARTING = 60.0
"""Seconds that a process may take until its claim loop turns first, beside its waits for the database."""

LIVED = 30.0
"""A process that lived so long is replaced at once; sooner dead ones wait, twice as long each time."""

LONGEST_WAIT = 30.0

LANES = 2
"""Suspects that run at a time, at least, each in a process of its own: a long one does not hold up all the others."""

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """``run()`` until told to stop, or until all processes have drained; answers the exit code."""

    def __init__(self, settings: Settings, options: Options, say: Callable[[str], None]) -> None:
        if not hasattr(os, "fork"):
            raise ConfigurationError(
                "run_jobs needs os.fork(), which this platform does not have; run it on Linux, macOS or BSD."
            )
        self._settings = settings
        self._options = options
        self._say = say
        self._children: dict[int, Child] = {}
        self._waits = [0.0] * settings.PROCESSES
        self._start_at = [0.0] * settings.PROCESSES
        self._finished = [False] * settings.PROCESSES
        self._given_back_at = 0.0
        """When a process ended that gave jobs back, by the monotonic clock."""
        self._lanes = max(LANES, settings.PROCESSES)
        self._suspects = 0
        """How many processes for them are to be started: one for each that is known to wait, as far as there are lanes."""
        self._alone_at = 0.0
        self._introduced = False
        self._ending = Ending(self._give_up)
        self._signals = 0
        self._told = False
        self._exit_code = 0
        self._bell: tuple[int, int] = (-1, -1)
        self._alive: tuple[int, int] = (-1, -1)

    def run(self) -> int:
        """Fork, watch, and clean up."""
        self._bell, self._alive = os.pipe(), os.pipe()
        for end in self._bell:
            os.set_blocking(end, False)
        before = {
            number: signal.signal(number, self._on_signal)
            for number in SIGNALS
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN  # else nohup asked us to go on
        }
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        ringer = signal.set_wakeup_fd(self._bell[1], warn_on_full_buffer=False)
        gc.freeze()  # what exists now stays shared with the processes
        try:
            while self._turn():
                self._sleep()
        finally:
            signal.set_wakeup_fd(ringer)
            self._ending.disarm()
            for number, handler in before.items():
                signal.signal(number, handler)
            for end in (*self._bell, *self._alive):
                os.close(end)
            gc.unfreeze()
        return self._exit_code

    # --- one turn of the loop ---

    def _turn(self) -> bool:
        """Bury, watch, start; whether there is anything left to do."""
        self._bury()
        now = time.monotonic()
        if self._ending.kill_at:
            if self._signals and not self._told:
                self._told = True
                self._tell_what_runs()
            if now > self._ending.kill_at:
                self._kill_all("did not stop in time")
            if now > self._ending.end_at:
                self._end_undertakers()
        for child in list(self._children.values()):
            self._watch(child, now)
        if self._ending.kill_at:
            return bool(self._children)
        self._start(now)
        return bool(self._children) or not all(self._finished) or bool(self._suspects)

    def _bury(self) -> None:
        """Take note of every process that has ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is None:
                continue  # as PID 1 we inherit the orphans of the container
            code = os.waitstatus_to_exitcode(status)
            if (child.alone or not child.worker) and self._options.drain:
                self._finished[0], self._given_back_at = (
                    False,
                    time.monotonic(),
                )  # they may be due: somebody looks once more
            if child.worker:
                self._ended(child, code)
            elif code > SUSPECTS:
                self._suspects = min(self._suspects + code - SUSPECTS, self._lanes)
            elif code == GAVE_UP or code < 0:
                self._exit_code = self._exit_code or (EX_TEMPFAIL if self._ending.kill_at else 0)
                logger.warning("a dead worker's jobs could not be given back: their leases lapse by themselves")

    def _ended(self, child: Child, code: int) -> None:
        """A worker process has ended: with what it held, and with its place."""
        board = child.board
        assert board is not None  # noqa: S101 - every worker has one
        if code not in (0, EX_TEMPFAIL, EX_CONFIG):
            cause = cause_of_death(code, child.killed_for)
            logger.error("worker %s: %s", child.worker, cause)
            self._undertake(child.worker, board.entries(), cause)
        elif (entries := board.entries()) or code == EX_TEMPFAIL:  # something is left, started or not
            self._undertake(child.worker, entries, f"interrupted: worker {child.worker} stopped", interrupted=True)
        board.close()
        if code == EX_CONFIG:
            self._exit_code = EX_CONFIG
            self._ending.at_once()
            return
        if self._ending.kill_at:
            self._exit_code = self._exit_code or (code if code in (0, EX_TEMPFAIL) else EX_SOFTWARE)
            return
        if child.alone:
            self._alone_at = time.monotonic() + (0.0 if code == 0 else 1.0)
            self._suspects = max(self._suspects, int(code != 0))
        elif code == 0 and not child.replaced and (self._options.drain or self._options.max_jobs is not None):
            self._finished[child.place] = child.place != 0 or child.started_at > self._given_back_at
        elif not child.replaced:
            self._replace(child, code)

    def _undertake(self, worker: str, entries: list[Entry], cause: str, *, interrupted: bool = False) -> None:
        """Have what it held ended; while stopping, no longer than the time that is left for that."""
        patience = self._settings.LEASE
        if self._ending.kill_at:
            patience = max(0.5, self._ending.end_at - 0.2 - time.monotonic())
        self._fork(
            lambda: undertake(self._settings, worker, entries, cause, interrupted=interrupted, patience=patience),
            place=-1,
            worker="",
            board=None,
        )

    def _replace(self, child: Child, code: int) -> None:
        """Its place is to be filled: at once, unless processes keep dying young."""
        now = time.monotonic()
        wait = self._waits[child.place]
        if code == 0 or now - child.started_at > LIVED:
            wait = 0.0
        self._start_at[child.place] = now + wait
        self._waits[child.place] = min(LONGEST_WAIT, max(1.0, wait * 2)) if code else 0.0

    def _watch(self, child: Child, now: float) -> None:
        """Kill a process that stands still; make room for one that retires."""
        board = child.board
        if board is None:
            return
        self._suspects = max(self._suspects, int(board.take_suspects()))
        if board.retired and not child.replaced and not child.alone:
            child.replaced = True
            self._start_at[child.place] = now
            self._waits[child.place] = 0.0
        if child.killed_for:
            return
        patience = self._settings.watchdog + (self._settings.LEASE - self._settings.watchdog) / 3
        ticked_at = board.ticked_at
        if ticked_at and now - ticked_at > patience:
            self._kill(child, f"its claim loop stood still for {now - ticked_at:.0f} s")
        elif not ticked_at and now - child.started_at > STARTING:
            self._kill(child, f"it did not start in {STARTING:.0f} s")
        else:
            late = self._settings.TIMEOUT_GRACE + 5
            for entry in board.entries():
                if entry.state is State.RUNNING and now > entry.deadline + late:
                    self._kill(child, f"job {entry.id} ran past its time limit and could not be stopped")
                    break

    def _start(self, now: float) -> None:
        """Start what is missing."""
        taken = {c.place for c in self._children.values() if c.worker and not c.replaced and not c.alone}
        for place in range(self._settings.PROCESSES):
            if place not in taken and not self._finished[place] and now >= self._start_at[place]:
                self._fork_worker(place, alone=False)
        free = self._lanes - sum(child.alone for child in self._children.values())
        while self._suspects and free > 0 and now >= self._alone_at:
            self._suspects -= 1
            free -= 1
            self._fork_worker(0, alone=True)

    # --- forking ---

    def _fork_worker(self, place: int, *, alone: bool) -> None:
        settings, options = self._settings, dataclasses.replace(self._options, suspects=False, own_process=True)
        if alone:  # one job at a time, and nothing beside it
            settings = dataclasses.replace(settings, THREADS=1, PREFETCH_MS=0, ASYNC_CONCURRENCY=1)
            options = dataclasses.replace(options, suspects=True, drain=True, max_jobs=None, listen=False)
        elif options.max_jobs is not None:
            share, rest = divmod(options.max_jobs, settings.PROCESSES)
            options = dataclasses.replace(options, max_jobs=share + (place < rest))
            if not options.max_jobs:
                self._finished[place] = True
                return
        say = (lambda line: None) if self._introduced or alone else self._say
        self._introduced = True
        board = Board(settings.THREADS + settings.ASYNC_CONCURRENCY + 2 * MOST)
        token = os.urandom(4).hex()
        alive = self._alive[0]
        started = self._fork(
            lambda: _work(settings, options, worker_name(os.getpid(), token), board, alive, say),
            place=place,
            worker=token,
            board=board,
            alone=alone,
        )
        if started:
            return
        board.close()
        if alone:
            self._suspects += 1
            self._alone_at = time.monotonic() + 1.0
        else:
            wait = self._waits[place] = min(LONGEST_WAIT, max(1.0, self._waits[place] * 2))
            self._start_at[place] = time.monotonic() + wait

    def _fork(
        self, task: Callable[[], int], *, place: int, worker: str, board: Board | None, alone: bool = False
    ) -> bool:
        """Fork a process that does ``task`` and exits with its answer; False when that is not possible now."""
        close_all()
        with contextlib.suppress(Exception):  # a pipe whose reader is gone, a full disk
            sys.stdout.flush()
            sys.stderr.flush()
        # No signal may reach the new process before it has handlers of its own: it would only be noted in ours. Nor may one
        # reach us before we know of the new process: nobody would pass it on.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            if worker and self._ending.kill_at:
                return False
            pid = os.fork()
            if pid == 0:
                self._be_child(task)
            name = worker_name(pid, worker) if worker else ""
            self._children[pid] = Child(pid, place, name, board, alone)
            return True
        except OSError as e:  # no memory, or too many processes
            logger.error("cannot start a process: %s", e)
            return False
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

    def _be_child(self, task: Callable[[], int]) -> None:
        """In the new process; never returns."""
        code = EX_SOFTWARE
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.signal(
                signal.SIGINT, signal.SIG_IGN
            )  # a terminal sends it to all: the supervisor passes on what it means
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            for end in (*self._bell, self._alive[1]):
                os.close(end)
            code = task()
        except ConfigurationError as e:
            print(f"CommandError: {e}", file=sys.stderr)
            code = EX_CONFIG
        except BaseException:  # noqa: BLE001
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                logging.shutdown()
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    # --- signals ---

    def _on_signal(self, number: int, frame: object) -> None:
        self._signals += 1
        if self._signals == 1:
            self._ending.begin(self._settings.GRACE)
            for child in list(self._children.values()):
                if child.worker:
                    _send(child.pid, signal.SIGTERM)
        else:
            self._kill_all("told to end at once")
            self._exit_code = 128 + number
            self._ending.at_once()

    def _give_up(self) -> None:
        """The time is over."""
        for child in list(self._children.values()):
            _send(child.pid, signal.SIGKILL)
        os._exit(EX_TEMPFAIL)

    def _tell_what_runs(self) -> None:
        """Whoever pressed Ctrl-C sees why it takes its time, and how to end that."""
        entries = [entry for child in self._children.values() if child.board for entry in child.board.entries()]
        if running := sum(entry.state is State.RUNNING for entry in entries):
            self._say(
                f"pgjobs stops: {running} running job{'s' * (running > 1)} may finish, for {self._settings.GRACE:g} s at most; "
                "a second signal kills the worker at once"
            )

    def _sleep(self) -> None:
        with contextlib.suppress(InterruptedError):
            select.select([self._bell[0]], [], [], LOOK)
        with contextlib.suppress(BlockingIOError):
            os.read(self._bell[0], 4096)

    def _kill(self, child: Child, reason: str) -> None:
        child.killed_for = reason
        _send(child.pid, signal.SIGKILL)

    def _end_undertakers(self) -> None:
        for child in list(self._children.values()):
            if not child.worker and not child.killed_for:
                logger.warning("a dead worker's jobs could not be given back in time: their leases lapse by themselves")
                self._kill(child, "did not end in time")

    def _kill_all(self, reason: str) -> None:
        for child in list(self._children.values()):
            if child.worker and not child.killed_for:
                self._kill(child, reason)


def close_all() -> None:
    """Close every connection of Django, pooled ones too: processes must not share a socket."""
    connections.close_all()
    for connection in connections.all(initialized_only=True):
        if connection.alias in getattr(connection, "_connection_pools", {}):
            connection.close_pool()  # type: ignore[attr-defined]


def _work(settings: Settings, options: Options, name: str, board: Board, alive: int, say: Callable[[str], None]) -> int:
    """The life of a worker process, from the fork to its exit code."""
    forked.watch()
    worker = Worker(settings, options, say, board=board, name=name, supervisor=alive)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    faulthandler.register(signal.SIGUSR1, all_threads=True, chain=False)  # where does it hang? kill -USR1 tells
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return worker.run()


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
