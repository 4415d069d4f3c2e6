"""A page of shared memory for each worker process: what its supervisor must know when the process cannot say it any more.

The process writes (its claim loop's tick, which jobs are in a handler, which have returned), the supervisor reads, also after
the process is gone. Times are of the monotonic clock, which is one for all processes of a machine.
"""

from __future__ import annotations

import enum
import mmap
import struct
import time
from typing import NamedTuple

HEADER = struct.Struct("=dBB")
ENTRY = struct.Struct("=qqdB")
STATE_AT = ENTRY.size - 1


class State(enum.IntEnum):
    """Of an entry."""

    FREE = 0
    RUNNING = 1
    RETURNED = 2
    """The handler returned; its finish may not be recorded yet."""
    RAISED = 3
    """The handler raised; its failure may not be recorded yet."""


FREE, RUNNING, *_ = State  # looking up a member of an enum takes longer than storing it


class Entry(NamedTuple):
    """One job of the page."""

    id: int
    lease: int
    deadline: float
    state: State


class Board:
    """The page of one process; made before the fork."""

    def __init__(self, places: int) -> None:
        self._map = mmap.mmap(-1, HEADER.size + places * ENTRY.size)
        self._free = list(range(places - 1, -1, -1))
        self._places = places

    # --- written by the worker process; an entry under the lock of its job ---

    def tick(self) -> None:
        """The claim loop turned."""
        struct.pack_into("=d", self._map, 0, time.monotonic())

    def pause_ticks(self) -> None:
        """From now on the claim loop does not turn: the process is stopping, with a deadline of its own."""
        struct.pack_into("=d", self._map, 0, float("inf"))

    def retire(self) -> None:
        """This process claims no more, and ends when its jobs have ended: its place is free."""
        self._map[8] = 1

    def saw_suspects(self) -> None:
        """There are jobs that must run alone."""
        self._map[9] = 1

    def put(self, id: int, lease: int, deadline: float) -> int:  # noqa: A002 - the column's name
        """A job enters a handler; its place, or -1 when the page is full."""
        try:
            place = self._free.pop()
        except IndexError:
            return -1
        at = HEADER.size + place * ENTRY.size
        ENTRY.pack_into(self._map, at, id, lease, deadline, FREE)
        self._map[at + STATE_AT] = RUNNING  # last: half an entry is none
        return place

    def mark(self, place: int, state: State) -> None:
        """The handler returned or raised."""
        if place >= 0:
            self._map[HEADER.size + place * ENTRY.size + STATE_AT] = state

    def clear(self, place: int) -> None:
        """The job is not this process's any more."""
        if place >= 0:
            self._map[HEADER.size + place * ENTRY.size + STATE_AT] = FREE
            self._free.append(place)

    # --- read by the supervisor ---

    @property
    def ticked_at(self) -> float:
        """When the claim loop turned last; 0 before the first turn, infinity while stopping."""
        return float(struct.unpack_from("=d", self._map, 0)[0])

    @property
    def retired(self) -> bool:
        """Whether its place is free."""
        return self._map[8] != 0

    def take_suspects(self) -> bool:
        """Whether it saw jobs that must run alone, since this was asked last."""
        seen, self._map[9] = self._map[9] != 0, 0
        return seen

    def entries(self) -> list[Entry]:
        """The jobs on the page."""
        found = []
        for place in range(self._places):
            id_, lease, deadline, state = ENTRY.unpack_from(self._map, HEADER.size + place * ENTRY.size)
            if state != State.FREE:
                found.append(Entry(id_, lease, deadline, State(state)))
        return found

    def close(self) -> None:
        """Give the memory back."""
        self._map.close()
