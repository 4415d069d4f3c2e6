"""One worker process: its roles put together, started in order, and stopped so that nothing is lost."""

from __future__ import annotations

import faulthandler
import logging
import os
import random
import resource
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from django.db import connections

from .. import store
from ..api.registry import registry
from ..conf import Settings
from ..exceptions import ConfigurationError
from . import capture, loop
from .announcer import Announcer
from .board import Board
from .claimer import MOST, Claimer, Served
from .completer import Completer
from .connection import close, dedicated, ready
from .executor import Executor
from .held import Held, HeldJobs, Stage
from .keeper import Keeper, names
from .limiter import Limiter
from .listener import Listener
from .outcome import Outcome, of_stopped

logger = logging.getLogger("pgjobs")

LAST_MOMENTS = 5.0
"""Seconds after GRACE in which a stopping process has to be gone, database or not."""

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
        self.retiring = ""
        """Why this process claims no more, and ends when its jobs have."""
        self._stuck = 0
        self.exit_code = 0
        self.started = threading.Event()
        """Set when all roles run."""
        self.recorded: dict[str, int] = {}
        """How many jobs ended with each status here."""
        self._say = say
        self._stopping = False
        self._stop_asked_at = 0.0
        self._watched_at = 0.0
        self._kinds = registry.kinds()
        self._served = Served(options.queues, options.exclude_queues, self._kinds)
        self._held = HeldJobs(self._board)
        self._claimer = Claimer(
            self.name,
            self._served,
            self._held,
            settings,
            threads=settings.THREADS,
            most=options.max_jobs,
            suspects=options.suspects,
        )
        self._recycle = Recycle(options)
        self._connection = dedicated(settings.DATABASE, "claimer")
        self._trouble = loop.Trouble("claimer")
        self._announcer = Announcer()
        self._completer = Completer(
            dedicated(settings.DATABASE, "completer"),
            self._held,
            self._announcer,
            lease=settings.LEASE,
            died=self._died,
            recorded=self._recorded,
        )
        self._executor = Executor(
            settings.THREADS,
            self._held,
            settings,
            ended=self._ended,
            ask_owned=self._completer.ask_owned,
            say_progress=self._completer.say_progress,
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
            died=self._died,
        )
        self._limiter = Limiter(self._held, settings, stuck=self._is_stuck, died=self._died)
        self._listener = Listener(
            dedicated(settings.DATABASE, "listener"),
            dedicated(settings.DATABASE, "self-test"),
            self._served.__contains__,
            self._notified,
            self._died,
        )

    def stop(self) -> None:
        """Begin to stop; safe in a signal handler."""
        if not self._stopping:
            self._stop_asked_at = time.monotonic()
            self._stopping = True
        self._claimer.wakes.ring()

    def run(self) -> int:
        """Work until stopped, drained, or done with ``max_jobs``; the exit code. Handlers may still run afterwards only
        when GRACE was too short for them: then the process has to end at once.

        Raises ConfigurationError when the database lacks the schema.
        """
        captured = capture.Capture()
        try:
            if self._introduce():
                logging.getLogger().addHandler(captured)
                self._start()
                self._work()
            return self._shut_down()
        finally:
            logging.getLogger().removeHandler(captured)
            if self.options.own_process:
                faulthandler.cancel_dump_traceback_later()

    @property
    def handlers_still_run(self) -> bool:
        """Whether GRACE was too short for a handler, or one is stuck."""
        return self._held.running > 0 or self._left_running or self._stuck > 0

    _left_running = False

    # --- the parts of run(), in their order ---

    def _introduce(self) -> bool:
        """Wait for the database, look at its schema, and say who works where; False when stopped meanwhile."""
        while not self._stopping:
            self._watch()
            try:
                connection = ready(self._connection)
                problem = store.schema_problem(connection)
                server, pending = (
                    (None, 0) if problem else (store.server(connection), store.pending_estimate(connection))
                )
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
        self._limiter.start()
        self._keeper.loop.start()
        if self._supervisor is not None:
            threading.Thread(target=self._outlive, name="pgjobs-supervised", daemon=True).start()
        if self.options.listen:
            self._listener.start()
        self.started.set()

    def _work(self) -> None:
        """The claim loop."""
        wakes = self._claimer.wakes
        while not self._stopping:
            self._watch()
            self._give_back(self._held.drop_all(Stage.BUFFERED, older_than=self.settings.LEASE / 3))
            empty_handed = len(self._held) == 0
            if not self.retiring and (reason := self._recycle.reason(sum(self.recorded.values()))):
                self.retire(reason)
            if self.retiring:
                self._give_back(self._held.drop_all(Stage.BUFFERED))
            if self._claimer.exhausted or self.retiring:
                if empty_handed:
                    return
                wakes.sleep(min(0.5, self._longest_sleep))
                continue
            room = self._claimer.room()
            if room == 0:
                wakes.sleep(self._longest_sleep)
                continue
            try:
                to_start, to_give_back = self._claimer.claim(ready(self._connection), room)
                for held in to_start:
                    self._executor.submit(held)
                self._give_back(to_give_back)
                got = len(to_start) + len(to_give_back)
                if got == 0 and self.options.drain and empty_handed:
                    return
                pause = (
                    0.0 if got >= room else self._claimer.pause(self._connection, listening=self._listener.listening)
                )
                self._trouble.over()
            except Exception as e:  # noqa: BLE001
                pause = self._trouble.met(e, self._connection)
                if not self._stopping:
                    time.sleep(
                        pause
                    )  # not to be cut short by a ring: a broken database gets no more tries for more work
                continue
            if pause:
                if not got:
                    time.sleep(EMPTY_PAUSE)  # announcements may come in thousands, for jobs that others take
                wakes.sleep(min(pause, self._longest_sleep))

    @property
    def _longest_sleep(self) -> float:
        """The claim loop turns at least so often: for the watchdog, and to look at what waits in the buffer."""
        busy = self._held.buffered or self.options.drain
        return min(0.5 if busy else 60.0, self.settings.watchdog / 3)

    def _watch(self) -> None:
        """Re-arm the watchdog: a process whose claim loop does not turn is gone before its leases lapse."""
        self._board.tick()
        now = time.monotonic()
        if self.options.own_process and now - self._watched_at > 1:
            self._watched_at = now
            faulthandler.dump_traceback_later(self.settings.watchdog, exit=True, file=sys.__stderr__ or 2)

    def _give_back(self, some: Sequence[Held]) -> None:
        """Release jobs that were not started."""
        if not some:
            return
        try:
            outcomes = store.release(
                ready(self._connection), [h.job.id for h in some], [h.job.lease for h in some], started=False
            )
        except Exception:
            self._held.put_back([h for h in some if h.stage is Stage.BUFFERED])
            raise
        self._claimer.given_back(sum(1 for o in outcomes.values() if o == "pending"))

    def _shut_down(self) -> int:
        """Release what has not started, wait for what runs, record how it ended, release the rest."""
        asked_at = self._stop_asked_at or time.monotonic()
        deadline = asked_at + self.settings.GRACE
        self._keeper.stopping = True
        self._board.pause_ticks()
        if self.options.own_process:
            faulthandler.cancel_dump_traceback_later()
            _exit_at(deadline + LAST_MOMENTS)
        if self.started.is_set():
            self._release_all(Stage.BUFFERED, started=False, until=deadline + LAST_MOMENTS - 1)
            while self._held.running and (left := deadline - time.monotonic()) > 0:
                self._claimer.wakes.sleep(min(left, 0.5))
            self._left_running = self._held.running > 0
            self._limiter.stop(3)
            if not self._left_running and not self._stuck:
                self._executor.stop(1)
            final = max(deadline, time.monotonic() + 1) + LAST_MOMENTS - 2
            self._completer.stop(max(0.1, final - time.monotonic()))
            self._announcer.stop(max(0.1, min(2.0, final - time.monotonic())))
            if self.options.listen:
                self._listener.stop(2)
            self._keeper.loop.stop(2)
            # Last, since another worker may start them at once.
            self._release_all(Stage.RUNNING, started=True, until=final + 1)
            try:
                store.forget_worker(ready(self._connection), self.name)
            except Exception as e:  # noqa: BLE001 - only for people to look at
                logger.debug("the worker's row stays: %s", loop.first_line(e))
        close(self._connection)
        return self.exit_code

    def _release_all(self, stage: Stage, *, started: bool, until: float) -> None:
        """Give back all jobs of a stage, trying until a time by the monotonic clock."""
        some = self._held.drop_all(stage)
        for held in some:
            held.cancel = True  # tell the handler, if it asks
        reason = f"interrupted: worker {self.name} stopped"
        while some:
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

    def _is_stuck(self, held: Held) -> None:
        """A handler does not stop: its attempt ends, its thread is lost, the process goes when the others are done."""
        if self._held.end(held, returned=False):
            self._stuck += 1
            outcome = of_stopped(held.told, None, held.job, registry.find(held.job.kind), self.settings)
            self._completer.complete(held, outcome)
            self.retire(f"job {held.job.id} does not stop")

    def _outlive(self) -> None:
        """Stop when the supervisor is gone: nobody else would."""
        if self._supervisor is not None and not os.read(self._supervisor, 1):
            logger.warning("worker %s: its supervisor is gone; it stops", self.name)
            self.stop()

    def _ended(self, held: Held, outcome: Outcome, seconds: float) -> None:
        self._completer.complete(held, outcome)
        self._claimer.pace.saw(seconds)
        if self._held.buffered <= self._claimer.low_water:
            self._claimer.wakes.ring()

    def _recorded(self, status: str) -> None:
        self.recorded[status] = self.recorded.get(status, 0) + 1
        if status == "pending":
            self._claimer.ask_due = True
            self._claimer.wakes.ring()
        elif not len(self._held):
            self._claimer.wakes.ring()

    def _notified(self) -> None:
        self._claimer.ask_due = True
        self._claimer.wakes.ring()

    def _died(self, role: str, error: BaseException) -> None:
        logger.critical("the %s of this worker died: the process stops", role, exc_info=error)
        self.exit_code = EX_SOFTWARE
        self.stop()


def worker_name(pid: int, token: str) -> str:
    """host:pid:token. The token is random for each process: host and pid come back after a restart of a container."""
    return f"{socket.gethostname()[:100]}:{pid}:{token}"


class Recycle:
    """When a process makes room for a new one; each limit up to a tenth lower, so that processes do not go together."""

    def __init__(self, options: Options) -> None:
        less = 1 - random.random() / 10
        self._jobs = None if options.recycle_jobs is None else max(1, round(options.recycle_jobs * less))
        self._rss = None if options.recycle_rss is None else options.recycle_rss * less
        self._lifetime = None if options.recycle_lifetime is None else options.recycle_lifetime * less
        self._born = time.monotonic()
        self._looked = 0.0

    def reason(self, jobs: int) -> str:
        """Why it is time; empty while it is not."""
        now = time.monotonic()
        if self._jobs is not None and jobs >= self._jobs:
            return f"{jobs} jobs"
        if self._lifetime is not None and now - self._born >= self._lifetime:
            return f"{now - self._born:.0f} s old"
        if self._rss is not None and now - self._looked >= 1:
            self._looked = now
            if (size := rss()) >= self._rss:
                return f"{size:.0f} MiB of memory"
        return ""


def rss() -> float:
    """MiB of memory that this process holds now; the most it ever held where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (2**20 if sys.platform == "darwin" else 2**10)


EMPTY_PAUSE = 0.01
"""Seconds after a claim that found nothing."""


def _exit_at(deadline: float) -> None:
    """End the process at a time by the monotonic clock, whatever still hangs."""

    def end() -> None:
        logger.error("the process did not stop in time: it ends now")
        logging.shutdown()
        os._exit(EX_TEMPFAIL)

    timer = threading.Timer(max(0.0, deadline - time.monotonic()), end)
    timer.daemon = True
    timer.start()
