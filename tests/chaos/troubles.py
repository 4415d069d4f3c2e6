"""Makes troubles happen, and notes from when to when each lasted."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence

import psycopg

from tests.private_server import Server

from .fleet import Fleet, Supervisor, children
from .history import Trouble
from .plan import Card

STALL = 0.5
"""Seconds that this process may be kept from running; more is a trouble that the machine made by itself."""

EXIT = 3 + 5 + 4
"""Seconds that a supervisor has to end in after SIGTERM: GRACE, the last moments, and a busy machine's slowness."""


class Troubles:
    """Plays a plan. Each trouble has a thread of its own, since some last; but only one is the server's at a time."""

    def __init__(self, server: Server, fleet: Fleet, lease: float, pause: Callable[[float], None]) -> None:
        self.happened: list[Trouble] = []
        self.failed: list[str] = []
        self._server = server
        self._fleet = fleet
        self._lease = lease
        self._pause = pause
        self._at_server = threading.Lock()
        self._over = threading.Event()

    def play(self, plan: Sequence[Card]) -> None:
        """All of it; returns when the last trouble is over."""
        watch = threading.Thread(target=self._watch_the_machine, daemon=True)
        watch.start()
        began = time.monotonic()
        threads = []
        for card in plan:
            time.sleep(max(0.0, began + card.at - time.monotonic()))
            self._fleet.fill()
            thread = threading.Thread(target=self._happen, args=(card,), name=card.kind, daemon=True)
            thread.start()
            threads.append(thread)
        for thread in threads:
            thread.join()
        self._fleet.fill()

    def end(self) -> None:
        """No more of them; none is at the server when this returns, nor comes to it."""
        self._over.set()
        self._at_server.acquire()

    def _happen(self, card: Card) -> None:
        doers = {
            "kill": self._kill,
            "stop": self._stop,
            "deploy": self._deploy,
            "terminate": self._terminate,
            "restart": self._restart,
            "server": self._take_server_away,
            "pause": lambda card: self._pause(0.5 + 2 * card.much),
        }
        try:
            doers[card.kind.split()[0]](card)
        except Exception as error:
            self.failed.append(f"{card.kind}: {type(error).__name__}: {error}")

    def _note(self, kind: str, began: float, pids: Sequence[int] = (), ended: float | None = None) -> None:
        self.happened.append(Trouble(kind=kind, began=began, ended=ended or time.time(), pids=frozenset(pids)))

    # --- processes ---

    def _kill(self, card: Card) -> None:
        began = time.time()
        if card.kind == "kill worker":
            pid = self._fleet.choose_worker(card.whom)
            pids = [pid] if pid else []
        else:
            one = self._fleet.choose(card.whom)
            pids = one.tree if one and card.kind == "kill tree" else [one.pid] if one else []
        if pids:
            ended = self._fleet.kill(pids)
            self._note(card.kind, began, pids, ended)

    def _stop(self, card: Card) -> None:
        seconds = 0.3 + 1.5 * card.much if "briefly" in card.kind else self._lease + 0.5 + 2 * card.much
        if "tree" in card.kind:
            one = self._fleet.choose(card.whom)
            pids = one.tree if one else []
        else:
            pid = self._fleet.choose_worker(card.whom)
            pids = [pid] if pid else []
        if not pids:
            return
        began = time.time()
        self._signal(pids, signal.SIGSTOP)
        time.sleep(seconds)
        self._signal(pids, signal.SIGCONT)
        self._note(card.kind, began, pids)

    def _signal(self, pids: Sequence[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _deploy(self, card: Card) -> None:
        """Rolling: the new one starts when the old one is told to stop."""
        one = self._fleet.choose(card.whom)
        if one is None:
            return
        began, pids = time.time(), one.tree
        one.stopping = True
        self._fleet.start()
        self._fleet.stop(one, EXIT + self._stopped_for(one))
        self._note(card.kind, began, pids)

    def _stopped_for(self, one: Supervisor) -> float:
        """A supervisor that is stopped meanwhile cannot end; nor one whose processes are."""
        return self._lease + 6 if any(_stopped(pid) for pid in [one.pid, *children(one.pid)]) else 0

    # --- the server ---

    def _terminate(self, card: Card) -> None:
        share = 1.0 if "all" in card.kind else 0.4
        began = time.time()
        with contextlib.suppress(psycopg.Error), self._server.connect() as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = 'jobs' AND pid <> pg_backend_pid() AND random() < %s",
                [share],
            )
        self._note(card.kind, began)

    def _restart(self, card: Card) -> None:
        with self._at_server:
            began = time.time()
            self._server.stop(card.kind.split()[1])
            self._server.start()
            self._note(card.kind, began)

    def _take_server_away(self, card: Card) -> None:
        with self._at_server:
            began = time.time()
            self._server.stop("fast")
            time.sleep(1 + (self._lease + 1) * card.much)
            self._server.start()
            self._note(card.kind, began)

    def _watch_the_machine(self) -> None:
        """A machine too busy to let processes run is a trouble too."""
        before = time.time()
        while not self._over.wait(0.1):
            now = time.time()
            if now - before > STALL:
                self._note("machine stalled", before, (), now)
            before = now


def _stopped(pid: int) -> bool:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] == "T"
    return False
