"""Everything that is known of a stretch of time, as plain values: what the checker reads, and tests can write by hand."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import class_row

from . import journal

FINAL = ("done", "failed", "dead", "cancelled")
LIVE = ("pending", "reserved")
CENSUS = 2.0
"""Seconds after which the census of processes has seen, on a busy machine too, that one is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A row of the job table got another status or another lease. Times are seconds of the machine's clock."""

    seq: int
    at: float
    who: str
    """The application name of the session: which role of a worker, an enqueuer, the operator, a handler."""
    job: int
    kind: str = "quick"
    queue: str = "default"
    key: str | None = None
    old: str
    """The status before; empty for a new row."""
    new: str
    lease_old: int | None = None
    lease_new: int | None = None
    attempts_old: int | None = 0
    attempts_new: int = 0
    max_attempts: int = 10
    refunds_old: int | None = 0
    refunds_new: int = 0
    worker: str | None = None
    until_old: float | None = None
    """Until when the reservation held that this move ended."""
    run_after: float = 0.0
    suspect: bool = False
    cancel: bool = False
    """Whether somebody had asked to cancel it."""

    @property
    def pid(self) -> int:
        """The process that holds or held it."""
        return int(self.worker.split(":")[-2]) if self.worker else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a handler, by its own account."""

    job: int
    kind: str = "quick"
    lease: int
    """The lease that it was claimed with; it may be continued under another."""
    pid: int
    batch: int = 0
    start: float
    end: float | None = None
    how: str = ""
    """``returned`` or the class of what it raised; empty when it never said."""
    last_lease: int = 0

    @property
    def leases(self) -> set[int]:
        return {self.lease, self.last_lease} - {0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that was done to processes, or to the server (no ``pids``: to everybody)."""

    kind: str
    began: float
    ended: float
    pids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """An enqueue that was answered ``rerun``."""

    batch: int
    kind: str
    key: str
    at: float
    """When it was made; it was committed later, or never."""


@dataclass(kw_only=True)
class History:
    """What the checker reads."""

    moves: list[Move] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    committed: set[int] = field(default_factory=set)
    """Batches whose transaction committed."""
    created: dict[int, int] = field(default_factory=dict)
    """Batch of each job that an enqueue said it had created, committed or not, by id."""
    statuses: dict[int, str] = field(default_factory=dict)
    """Of every row that there is at the end, by id."""
    effects: Counter[int] = field(default_factory=Counter)
    wishes: list[Wish] = field(default_factory=list)
    wishes_left: int = 0
    pauses: list[tuple[str, float, float]] = field(default_factory=list)
    """Queue, from, to: when the pause was known to be committed, and when its end was asked for."""
    timeouts: set[tuple[int, str]] = field(default_factory=set)
    """(job, worker) of attempts that were recorded as timed out."""
    gone: dict[int, float] = field(default_factory=dict)
    """Processes that somebody saw, and when they were seen no more."""
    deadly: list[tuple[int, float]] = field(default_factory=list)
    """Processes that a job of theirs was about to kill, and when."""
    lease: float = 6.0
    heartbeat: float = 2.0

    @cached_property
    def of_job(self) -> dict[int, list[Move]]:
        """The moves of each job, in order."""
        found: dict[int, list[Move]] = defaultdict(list)
        for move in sorted(self.moves, key=lambda m: m.seq):
            found[move.job].append(move)
        return found

    @cached_property
    def of_worker(self) -> dict[str, list[Move]]:
        """The moves of what each worker held."""
        found: dict[str, list[Move]] = defaultdict(list)
        for move in self.moves:
            found[move.worker or ""].append(move)
        return found

    @cached_property
    def jobs_of_key(self) -> dict[tuple[str, str], set[int]]:
        found: dict[tuple[str, str], set[int]] = defaultdict(set)
        for move in self.moves:
            if move.key is not None:
                found[move.kind, move.key].add(move.job)
        return found

    @cached_property
    def endings(self) -> dict[tuple[int, int], Move]:
        """The move that ended each (job, lease)."""
        return {(m.job, m.lease_old): m for m in self.moves if m.lease_old is not None and m.lease_new != m.lease_old}

    @cached_property
    def runs_of_job(self) -> dict[int, list[Run]]:
        found: dict[int, list[Run]] = defaultdict(list)
        for run in sorted(self.runs, key=lambda r: r.start):
            found[run.job].append(run)
        return found

    @cached_property
    def deaths(self) -> dict[int, float]:
        """When each process that has ended was gone for certain: somebody looked for it; or its undertaker came, and who
        looked for it saw the same.
        """
        gone = dict(self.gone)
        for trouble in self.troubles:
            if trouble.kind.startswith("kill"):
                for pid in trouble.pids:
                    gone[pid] = min(gone.get(pid, trouble.ended), trouble.ended)
        for move in self.moves:
            if move.who == "pgjobs undertaker" and move.old == "reserved":
                seen = self.gone.get(move.pid, move.at)
                if seen < move.at + CENSUS:
                    gone[move.pid] = min(gone.get(move.pid, move.at), move.at)
        return gone


def read(connection: psycopg.Connection[Any], path: Path, **known: Any) -> History:
    """The history of a database and a journal; ``known`` is what only the test itself knows."""
    lines = journal.read(path)
    ends = {line["run"]: line for line in lines if line["what"] == "end"}
    runs = [_run(line, ends.get(line["run"])) for line in lines if line["what"] == "start"]
    names = ", ".join(f.name for f in Move.__dataclass_fields__.values())
    with connection.cursor(row_factory=class_row(Move)) as cursor:
        moves = cursor.execute(f"SELECT {names} FROM chaos_move ORDER BY seq").fetchall()  # type: ignore[arg-type]  # noqa: S608

    def rows(sql: str) -> list[Any]:
        return connection.execute(sql).fetchall()  # type: ignore[arg-type]

    return History(
        moves=moves,
        runs=runs,
        committed={batch for (batch,) in rows("SELECT id FROM chaos_batch")},
        statuses=dict(rows("SELECT id, status FROM pgjobs_job")),
        effects=Counter(dict(rows("SELECT job_id, count(*) FROM chaos_effect GROUP BY 1"))),
        deadly=[(line["pid"], line["at"]) for line in lines if line["what"] == "deadly"],
        wishes_left=rows("SELECT count(*) FROM pgjobs_rerun")[0][0],
        timeouts=set(rows("SELECT job_id, worker FROM pgjobs_attempt WHERE outcome = 'timeout'")),
        **known,
    )


def _run(start: dict[str, Any], end: dict[str, Any] | None) -> Run:
    names = ("job", "kind", "lease", "pid", "batch")
    said = {"end": end["at"], "how": end["how"], "last_lease": end["lease"]} if end else {}
    return Run(**{name: start[name] for name in names}, start=start["at"], **said)
