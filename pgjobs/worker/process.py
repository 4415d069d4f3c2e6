"""One worker process: its roles put together, started in order, and stopped so that nothing is lost."""

from __future__ import annotations

import faulthandler
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django.db import connections

from .. import store
from ..api.registry import registry
from ..conf import Settings
from ..exceptions import ConfigurationError
from . import capture, loop
from .aio import AsyncExecutor
from .announcer import Announcer
from .board import Board
from .claim_loop import ClaimLoop
from .claimer import MOST, Claimer, Intake, Served
from .completer import Completer
from .connection import close, dedicated, ready
from .executor import Executor
from .held import Held, HeldJobs, Pool, Stage
from .keeper import Keeper, names
from .limiter import Limiter
from .listener import Listener
from .lost_answers import LostAnswers
from .outcome import Outcome, of_stopped
from .recycle import Recycle
from .running import Running
from .ticker import Ticker

logger = logging.getLogger("pgjobs")

LAST_MOMENTS = 3.0
"""Seconds after GRACE in which a stopping process has to be gone, database or not. Its supervisor ends within five."""

EX_SOFTWARE, EX_TEMPFAIL, EX_CONFIG = 70, 75, 78
"""Exit codes (sysexits.h): a role died; the deadline ended the process; the database is not ready for pgjobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command was asked to do; None of ``queues`` is all of them."""

    queues: Sequence[str] | None = None
    exclude_queues: Sequence[str] = ()
    drain: bool = False
    max_jobs: int | None = None
    listen: bool = True
    suspects: bool | None = None
    """Jobs that must run alone: True for only those, False for none of them, None for all."""
    recycle_jobs: int | None = None
    recycle_rss: int | None = None
    """MiB of memory after which the process makes room for a new one."""
    recycle_lifetime: float | None = None
    own_process: bool = False
    """Whether the process is the worker's alone: then a watchdog and a deadline may end it."""


class Worker:
    """Runs jobs until it is told to stop; :meth:`run` in one thread, :meth:`stop` from anywhere."""

    def __init__(
        self,
        settings: Settings,
        options: Options,
        say: Callable[[str], None] = logger.info,
        *,
        board: Board | None = None,
        name: str | None = None,
        supervisor: int | None = None,
    ) -> None:
        self.settings = settings
        self.options = options
        self.name = name or worker_name(os.getpid(), secrets.token_hex(4))
        self._board = board or Board(settings.THREADS + settings.ASYNC_CONCURRENCY + 2 * MOST)
        self._supervisor = supervisor
        """The end of a pipe that closes when the supervisor is gone."""
        self._orphaned = False
        self.retiring = ""
        """Why this process claims no more, and ends when its jobs have."""
        self._stuck = 0
        self.exit_code = 0
        self.started = threading.Event()
        """Set when all roles run."""
        self.recorded: dict[str, int] = {}
        """How many jobs ended with each status here."""
        self._say = say
        self._stop_asked_at = 0.0
        self._kinds = registry.kinds()
        self._served = Served(options.queues, options.exclude_queues)
        self._held = HeldJobs(self._board)
        self._claimer = Claimer(
            self.name, self._served, self._held, settings, most=options.max_jobs, suspects=options.suspects
        )
        prefetch = settings.PREFETCH_MS / 1000
        self._intakes = (
            Intake(Pool.THREADS, registry.kinds(is_async=False), settings.THREADS, self._held, prefetch),
            Intake(Pool.LOOP, registry.kinds(is_async=True), settings.ASYNC_CONCURRENCY, self._held, 0),
        )
        self._connection = dedicated(settings.DATABASE, "claimer")
        self._trouble = loop.Trouble("claimer")
        self._lost_answers = LostAnswers(self.name, self._held)
        self._announcer = Announcer()
        self._completer = Completer(
            dedicated(settings.DATABASE, "completer"),
            self._held,
            self._announcer,
            lease=settings.LEASE,
            died=self._died,
            recorded=self._recorded,
        )
        running = Running(settings, self._completer.ask_owned, self._completer.say_progress)
        self._executor = Executor(settings.THREADS, self._held, running, ended=self._ended, died=self._died)
        self._async_executor = AsyncExecutor(self._held, running, ended=self._ended, died=self._died)
        self._ticker = Ticker(
            dedicated(settings.DATABASE, "ticker"),
            settings,
            self._announcer,
            listening=lambda: self._listener.listening,
            died=self._died,
        )
        self._keeper = Keeper(
            dedicated(settings.DATABASE, "keeper"),
            store.Beat(
                worker=self.name,
                host=socket.gethostname(),
                pid=os.getpid(),
                queues=names(options.queues),
                exclude_queues=options.exclude_queues,
                kinds=self._kinds,
                threads=settings.THREADS,
            ),
            self._held,
            settings,
            self._announcer,
            reaped=self._claimer.wakes.ring,
            suspects=self._board.saw_suspects,
            tick=self._ticker.expect,
            died=self._died,
        )
        self._limiter = Limiter(self._held, settings, stuck=self._is_stuck, died=self._died)
        self._listener = Listener(
            dedicated(settings.DATABASE, "listener"),
            dedicated(settings.DATABASE, "self-test"),
            self._served.__contains__,
            self._claimer.wakes.ring,
            self._ticker.wake,
            self._died,
        )
        self._recycle = Recycle(options.recycle_jobs, options.recycle_rss, options.recycle_lifetime)
        self._loop = ClaimLoop(
            settings=settings,
            held=self._held,
            board=self._board,
            connection=self._connection,
            claimer=self._claimer,
            places=((self._intakes[0], self._executor), (self._intakes[1], self._async_executor)),
            listening=lambda: self._listener.listening,
            retiring=self._is_retiring,
            overloaded=lambda: self._held.overloaded or self._announcer.full,
            drain=options.drain,
            watchdog=options.own_process,
            trouble=self._trouble,
            lost_answers=self._lost_answers,
        )

    def stop(self) -> None:
        """Begin to stop; safe in a signal handler."""
        if not self._loop.stopping:
            self._stop_asked_at = time.monotonic()
            self._loop.stopping = True
        self._claimer.wakes.ring()

    def run(self) -> int:
        """Work until stopped, drained, or done with ``max_jobs``; the exit code. Handlers may still run afterwards only
        when GRACE was too short for them: then the process has to end at once.

        Raises ConfigurationError when the database lacks the schema.
        """
        try:
            with capture.installed():
                if self._introduce():
                    self._start()
                    try:
                        self._loop.run()
                    except Exception as e:  # noqa: BLE001
                        self._died("claimer", e)
                return self._shut_down()
        finally:
            if self.options.own_process:
                faulthandler.cancel_dump_traceback_later()

    # --- the parts of run(), in their order ---

    def _introduce(self) -> bool:
        """Wait for the database, look at its schema, and say who works where; False when stopped meanwhile."""
        while not self._loop.stopping:
            self._loop.watch()
            try:
                connection = ready(self._connection)
                problem = store.schema_problem(connection)
                server, pending = (
                    (None, 0) if problem else (store.server(connection), store.pending_estimate(connection))
                )
                if not problem and self.options.suspects is not True:  # a process for those alone fires nothing
                    self._ticker.start(connection, drain=self.options.drain, watch=self._loop.watch)
                self._trouble.over()
                break
            except Exception as e:  # noqa: BLE001
                self._claimer.wakes.sleep(self._trouble.met(e, self._connection))
        else:
            return False
        if problem or server is None:
            raise ConfigurationError(
                f"the database {connections[self.settings.DATABASE].settings_dict['NAME']!r} (alias {self.settings.DATABASE!r}) "
                f"is not ready for pgjobs: {problem}. Run `manage.py migrate --database {self.settings.DATABASE}`."
            )
        queues = ", ".join(self.options.queues) if self.options.queues is not None else "all"
        if self.options.exclude_queues:
            queues += f" but {', '.join(self.options.exclude_queues)}"
        self._say(
            f"pgjobs worker {self.name}: database {server.database!r} (alias {self.settings.DATABASE!r}) "
            f"on {server.host}:{server.port}, schema {server.schema!r}, "
            f"PostgreSQL {server.version}; queues: {queues}; kinds: {', '.join(self._kinds)}; "
            f"{self.settings.THREADS} threads; {pending if pending < 10_000 else '10,000 or more'} pending"
        )
        return True

    def _start(self) -> None:
        self._announcer.start()
        self._completer.start()
        self._executor.start()
        if self._intakes[Pool.LOOP].kinds:
            self._async_executor.start()
        self._limiter.start()
        self._keeper.loop.start()
        if self._supervisor is not None:
            threading.Thread(target=self._outlive, name="pgjobs-supervised", daemon=True).start()
        if self.options.listen:
            self._listener.start()
        self.started.set()

    def _shut_down(self) -> int:
        """Release what has not started, wait for what runs, record how it ended, release the rest."""
        asked_at = self._stop_asked_at or time.monotonic()
        deadline = asked_at + self.settings.GRACE
        self._keeper.stopping = True
        if self.options.own_process:
            _exit_at(deadline + LAST_MOMENTS)
        if self.started.is_set():
            # A handler may freeze the process now as well as before: the watchdog stays awake until none runs.
            self._release_all(Stage.BUFFERED, started=False, until=deadline + LAST_MOMENTS - 1, watch=self._loop.watch)
            while self._held.all_running and (left := deadline - time.monotonic()) > 0:
                self._loop.watch()
                self._claimer.wakes.sleep(min(left, 0.5))
            self._loop.unwatch()
            if self.options.own_process:  # the last word, which needs no interpreter lock
                last = max(0.1, deadline + LAST_MOMENTS + 0.25 - time.monotonic())
                faulthandler.dump_traceback_later(last, exit=True, file=2)
            self._limiter.stop(1)
            if not self._held.all_running and not self._stuck:
                self._executor.stop(1)
                self._async_executor.stop(1)
            final = deadline + LAST_MOMENTS - 0.5

            def spare_time(most: float, spare: float = 0.0) -> float:
                return max(0.1, min(most, final - spare - time.monotonic()))

            self._completer.stop(spare_time(float("inf"), spare=1.0))
            self._announcer.stop(spare_time(2.0, spare=1.0))
            if self.options.listen:
                self._listener.stop(spare_time(2.0, spare=0.5))
            self._ticker.stop(spare_time(2.0, spare=0.5))
            self._keeper.loop.stop(spare_time(2.0, spare=0.5))
            if self._supervisor is None or self._orphaned:
                # Last, since another worker may start them at once.
                self._release_all(Stage.RUNNING, started=True, until=final)
            else:
                for held in self._held.snapshot():
                    held.cancel = True  # the supervisor gives them back, when this process is gone
            try:
                if self._lost_answers.feared:
                    self._lost_answers.look(ready(self._connection))
                store.forget_worker(ready(self._connection), self.name)
            except Exception as e:  # noqa: BLE001 - only for people to look at
                logger.debug("the worker's row stays: %s", loop.first_line(e))
        close(self._connection)
        return self.exit_code

    def _release_all(
        self, stage: Stage, *, started: bool, until: float, watch: Callable[[], None] = lambda: None
    ) -> None:
        """Give back all jobs of a stage, trying until a time by the monotonic clock; ``watch`` is called before each try."""
        some = self._held.drop_all(stage)
        for held in some:
            held.cancel = True  # tell the handler, if it asks
        reason = f"interrupted: worker {self.name} stopped"
        while some:
            watch()
            try:
                outcomes = store.release(
                    ready(self._connection),
                    [h.job.id for h in some],
                    [h.job.lease for h in some],
                    started=started,
                    reason=reason,
                )
                some = [h for h in some if outcomes.get(h.job.id) == "busy"]
                pause = 0.05
            except Exception as e:  # noqa: BLE001
                pause = self._trouble.met(e, self._connection)
            if some and time.monotonic() + pause > until:
                logger.error(
                    "%d jobs could not be released; their leases lapse within %.0f s", len(some), self.settings.LEASE
                )
                self.exit_code = self.exit_code or EX_TEMPFAIL
                return
            if some:
                time.sleep(pause)

    # --- called by the roles, in their threads ---

    def retire(self, reason: str) -> None:
        """Claim no more, end when all jobs have ended; the supervisor starts a replacement at once."""
        if not self.retiring:
            logger.info("worker %s retires: %s", self.name, reason)
            self.retiring = reason
            self._board.retire()
            self._claimer.wakes.ring()

    def _is_retiring(self) -> bool:
        if not self.retiring and (reason := self._recycle.reason(sum(self.recorded.values()))):
            self.retire(reason)
        return bool(self.retiring)

    def _is_stuck(self, held: Held) -> None:
        """A handler does not stop: its attempt ends, its thread is lost, the process goes when the others are done."""
        if self._held.end(held, returned=False) is not None:
            self._stuck += 1
            outcome = of_stopped(held.told, None, held.job, registry.find(held.job.kind), self.settings)
            self._completer.complete(held, outcome)
            self.retire(f"job {held.job.id} does not stop")

    def _outlive(self) -> None:
        """Stop when the supervisor is gone: nobody else would."""
        if self._supervisor is not None and not os.read(self._supervisor, 1):
            logger.warning("worker %s: its supervisor is gone; it stops", self.name)
            self._orphaned = True
            self.stop()

    def _ended(self, held: Held, outcome: Outcome, seconds: float) -> None:
        self._completer.complete(held, outcome)
        intake = self._intakes[held.pool]
        intake.pace.saw(seconds)
        wanted = intake.more or not self._listener.listening or self._loop.stopping
        if wanted and self._held.buffered(held.pool) <= intake.low_water:
            self._claimer.wakes.ring()

    def _recorded(self, status: str, count: int) -> None:
        self.recorded[status] = self.recorded.get(status, 0) + count
        if status == "pending":
            self._claimer.wakes.ring()
        elif not len(self._held) and (self.options.drain or self.retiring or self._claimer.exhausted):
            self._claimer.wakes.ring()  # it may have been the last

    def _died(self, role: str, error: BaseException) -> None:
        logger.critical("the %s of this worker died: the process stops", role, exc_info=error)
        self.exit_code = EX_SOFTWARE
        self.stop()


def worker_name(pid: int, token: str) -> str:
    """host:pid:token. The token is random for each process: host and pid come back after a restart of a container."""
    return f"{socket.gethostname()[:100]}:{pid}:{token}"


def _exit_at(deadline: float) -> None:
    """End the process at a time by the monotonic clock, whatever still hangs."""

    def end() -> None:
        logger.error("the process did not stop in time: it ends now")
        logging.shutdown()
        os._exit(EX_TEMPFAIL)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
    timer.daemon = True
    timer.start()
