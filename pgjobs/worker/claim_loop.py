"""The loop of the main thread: claim, hand to the places where jobs run, sleep."""

from __future__ import annotations

import faulthandler
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from django.db.backends.base.base import BaseDatabaseWrapper

from .. import store
from ..conf import Settings
from .board import Board
from .claimer import Claimer, Intake
from .connection import keep_plans, ready
from .held import Held, HeldJobs, Stage
from .loop import Trouble
from .lost_answers import LostAnswers

EMPTY_PAUSE = 0.01
"""Seconds after claims in a row that somebody rang for and that found nothing: announcements may come in thousands, for jobs that
others take."""


OVERLOADED_PAUSE = 0.05
"""Seconds until another look at whether what has ended was recorded and told."""


class Starts(Protocol):
    """A place where jobs run."""

    def submit(self, held: Held) -> None: ...


@dataclass(slots=True, kw_only=True)
class ClaimLoop:
    """Turns until it is stopped, drained, or has nothing more to do. ``places`` are (intake, where its jobs run)."""

    settings: Settings
    held: HeldJobs
    board: Board
    connection: BaseDatabaseWrapper
    claimer: Claimer
    places: Sequence[tuple[Intake, Starts]]
    listening: Callable[[], bool]
    retiring: Callable[[], bool]
    overloaded: Callable[[], bool]
    drain: bool
    watchdog: bool
    trouble: Trouble
    lost_answers: LostAnswers
    stopping: bool = False
    _watched_at: float = 0.0
    _empty: int = 0
    _rung: bool = False
    """Whether somebody's ringing ended the last sleep."""

    def run(self) -> None:
        """The loop."""
        while not self.stopping:
            try:
                pause = self.turn()
                self.trouble.over()
            except Exception as e:  # noqa: BLE001
                pause = self.trouble.met(e, self.connection)
                self.lost_answers.fear()
                if not self.stopping:
                    time.sleep(pause)  # not to be cut short: a broken database gets no more tries for more work
                continue
            if pause is None:
                return
            if pause:
                self._sleep(min(pause, self.lost_answers.pause()))

    def turn(self) -> float | None:
        """One turn; how long to sleep after it, or None when there is nothing more to do."""
        self.watch()
        if self.lost_answers.due:
            self.lost_answers.look(ready(self.connection))
        retiring = self.retiring()
        self.give_back(self.held.drop_all(Stage.BUFFERED, older_than=0 if retiring else self.settings.LEASE / 3))
        empty_handed = len(self.held) == 0
        if self.claimer.exhausted or retiring:
            return None if empty_handed else 0.5
        if self.overloaded():
            return OVERLOADED_PAUSE
        full, got, due = self._claim()
        if got is None:
            return 60  # no room: a job that ends will ring
        if full:
            return 0
        if got:
            self._empty = 0
        elif self.drain and empty_handed:
            partly = [intake.reach.sweep() for intake, _ in self.places]
            return 0 if any(partly) else None
        else:
            self._empty += 1
            if self._empty > 1 and self._rung:
                time.sleep(EMPTY_PAUSE)
        behind = min(intake.reach.behind for intake, _ in self.places)
        return min(self.claimer.pause(got, due, listening=self.listening()), behind)

    def _claim(self) -> tuple[bool, int | None, float | None]:
        """Claim for each place that has room: whether there may be more, how many came (None: there was no room), and in how
        many seconds the next comes due.
        """
        full, got, due = False, None, None
        for intake, place in self.places:
            room = self.claimer.room(intake)
            intake.more = bool(intake.kinds) and not room
            if room:
                connection, listening = ready(self.connection), self.listening()
                if listening:  # which is tried by a notification to ourselves: no pooler exchanges sessions here
                    keep_plans(connection)
                to_start, to_give_back, next_due = self.claimer.claim(
                    connection, intake, room, doze=listening and not got
                )
                for held in to_start:
                    place.submit(held)
                self.give_back(to_give_back)
                came = len(to_start) + len(to_give_back)
                intake.more = came >= room
                full, got = full or intake.more, (got or 0) + came
                due = min((d for d in (due, next_due) if d is not None), default=None)
        self.places = (*self.places[1:], *self.places[:1])  # where only one job may run at all, each has its turn
        return full, got, due

    def give_back(self, some: Sequence[Held]) -> None:
        """Release jobs that were not started."""
        if not some:
            return
        ids, leases = [h.job.id for h in some], [h.job.lease for h in some]
        try:
            outcomes = store.release(ready(self.connection), ids, leases, started=False)
        except Exception:
            self.held.put_back(some)
            raise
        # Rows that somebody holds, the beat for example: another turn gives them back, and until then they are beaten.
        self.held.put_back([h for h in some if outcomes.get(h.job.id) == "busy"])
        self.claimer.given_back(sum(1 for o in outcomes.values() if o == "pending"))

    def watch(self) -> None:
        """Say that the loop turns: a process whose loop does not is gone before its leases lapse."""
        self.board.tick()
        now = time.monotonic()
        if self.watchdog and now - self._watched_at > 1:
            self._watched_at = now
            faulthandler.dump_traceback_later(self.settings.watchdog, exit=True, file=2)

    def unwatch(self) -> None:
        """From now on nobody minds that the loop does not turn, until :meth:`watch` is called again."""
        self.board.pause_ticks()
        if self.watchdog:
            self._watched_at = 0.0
            faulthandler.cancel_dump_traceback_later()

    def _sleep(self, seconds: float) -> None:
        """Sleep until somebody rings, or there is something to look at. The watchdog sees that the loop is well meanwhile."""
        until = time.monotonic() + seconds
        while not self.stopping and (left := until - time.monotonic()) > 0:
            busy = self.held.all_buffered or self.drain
            self._rung = self.claimer.wakes.sleep(min(left, 0.5 if busy else 60.0, self.settings.watchdog / 3))
            if self._rung or busy:
                return
            self.watch()
            if self.retiring():
                return
