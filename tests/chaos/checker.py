"""The promises, read against a history. Each rule yields a violation for each job that breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from .history import FINAL, LIVE, History
from .overlaps import MOST_REFUNDS, frozen_processes_go, lapses_without_cause, no_two_runs_at_once


class Violation(NamedTuple):
    """What is wrong, and the job whose history shows it (0: none)."""

    rule: str
    job: int
    text: str


Rule = Callable[[History], Iterator[tuple[int, str]]]

HARMLESS = ("quick", "pausable", "keyed", "patient", "effect", "coroutine", "snoozing")
"""Kinds that always end done, or cancelled if somebody asks for that."""

PAUSE_SLACK = 2.0
"""Seconds after a pause in which a claim that had already begun may still come to its end."""

MOVES = {
    "": {"pending"},
    "pending": {"reserved", "cancelled", "dead"},
    "reserved": {"pending", "done", "failed", "dead", "cancelled"},
    **{status: {"pending"} for status in FINAL},
}
"""The state machine; a final job is only revived by the operator."""


def every_committed_job_ended(history: History) -> Iterator[tuple[int, str]]:
    """A job whose transaction committed is there, and has a final status; nothing is left reserved, no wish is left."""
    for job, batch in history.created.items():
        if batch in history.committed and job not in history.statuses:
            yield job, f"its transaction (batch {batch}) committed, and there is no such job"
    for job, status in history.statuses.items():
        if status not in FINAL:
            yield job, f"it is {status} at the end"
    if history.wishes_left:
        yield 0, f"{history.wishes_left} wishes for a rerun are left over"


def nothing_rolled_back_exists_or_ran(history: History) -> Iterator[tuple[int, str]]:
    """A job whose transaction or savepoint was rolled back is not there, and never ran."""
    for job, batch in history.created.items():
        if batch not in history.committed and job in history.statuses:
            yield job, f"its transaction (batch {batch}) was rolled back, and it is there"
    for run in history.runs:
        if run.batch not in history.committed:
            yield run.job, f"it ran in process {run.pid} for batch {run.batch}, which was rolled back"


def rows_move_as_drawn(history: History) -> Iterator[tuple[int, str]]:
    """Every move is one of the state machine, follows the one before, and only the operator revives."""
    for job, moves in history.of_job.items():
        before = ""
        for move in moves:
            if move.old != before:
                yield job, f"move {move.seq} leaves {move.old!r}, but it was {before!r}"
            if move.new not in MOVES.get(move.old, set()):
                yield job, f"move {move.seq}: {move.old} → {move.new} is no move"
            if move.old in FINAL and move.who != "chaos operator":
                yield job, f"move {move.seq}: {move.old} → {move.new} by {move.who!r}, who is no operator"
            before = move.new
        if job in history.statuses and history.statuses[job] != before:
            yield job, f"its last move made it {before!r}, but it is {history.statuses[job]!r}"


def one_run_and_one_outcome_a_claim(history: History) -> Iterator[tuple[int, str]]:
    """Each lease is drawn once for a job and ends once; it starts one handler at most; what returned is done, or was lost."""
    claimed: set[tuple[int, int]] = set()
    ended: set[tuple[int, int]] = set()
    for move in history.moves:
        if move.lease_new is not None and move.lease_new != move.lease_old:
            if (move.job, move.lease_new) in claimed:
                yield move.job, f"move {move.seq}: lease {move.lease_new} was drawn twice"
            claimed.add((move.job, move.lease_new))
        if move.lease_old is not None and move.lease_old != move.lease_new:
            if (move.job, move.lease_old) in ended:
                yield move.job, f"move {move.seq}: the attempt under lease {move.lease_old} ended twice"
            ended.add((move.job, move.lease_old))
    for job, lease in claimed - ended:
        yield job, f"the attempt under lease {lease} has no outcome"
    started: set[tuple[int, int]] = set()
    for run in history.runs:
        if (run.job, run.lease) in started:
            yield run.job, f"two handlers were started under lease {run.lease}"
        if (run.job, run.lease) not in claimed:
            yield run.job, f"a handler was started under lease {run.lease}, which nobody drew"
        started.add((run.job, run.lease))
        ending = history.endings.get((run.job, run.last_lease or run.lease))
        # An atomic handler that returned has still to commit, and what ended before it returned (a stuck thread's attempt,
        # a job given back at the end of GRACE) is told by other rules.
        returned = run.how == "returned" and run.kind != "effect" and ending and (run.end or 0) <= ending.at
        if returned and ending and ending.who == "pgjobs completer" and ending.new != "done":
            yield run.job, f"its handler returned at {run.end}, but its worker made it {ending.new}"


def effects_exactly_once(history: History) -> Iterator[tuple[int, str]]:
    """An ``atomic=True`` job that is done has its effect once; one that is not has none."""
    kinds = {move.job: move.kind for move in history.moves}
    for job, kind in kinds.items():
        wanted = int(history.statuses.get(job) == "done")
        if kind == "effect" and history.effects[job] != wanted:
            yield job, f"it is {history.statuses.get(job)}, and its effect exists {history.effects[job]} times"


def deploys_burn_no_attempt(history: History) -> Iterator[tuple[int, str]]:
    """What a stopping worker gives back is refunded: unstarted always, running ones five times."""
    for move in history.moves:
        if move.who != "pgjobs claimer" or move.old != "reserved":
            continue
        refunded = move.attempts_new == (move.attempts_old or 0) - 1
        if not refunded and (move.refunds_old or 0) < MOST_REFUNDS:
            yield move.job, f"move {move.seq}: released, and attempt {move.attempts_old} was not given back"


def attempts_within_bounds(history: History) -> Iterator[tuple[int, str]]:
    """No job is started more often than it may be, nor before its time."""
    for move in history.moves:
        if move.new != "reserved":
            continue
        if move.attempts_new > move.max_attempts:
            yield move.job, f"move {move.seq}: attempt {move.attempts_new} of {move.max_attempts}"
        if move.run_after > move.at + 0.001:
            yield move.job, f"move {move.seq}: claimed {move.run_after - move.at:.3f} s before its time"


def one_live_job_a_key(history: History) -> Iterator[tuple[int, str]]:
    """At no moment do two live jobs of a kind share a dedupe key."""
    holder: dict[tuple[str, str], int] = {}
    for move in sorted(history.moves, key=lambda m: m.seq):
        if move.key is None:
            continue
        key = (move.kind, move.key)
        if move.new in LIVE:
            if holder.setdefault(key, move.job) != move.job:
                yield move.job, f"move {move.seq}: it lives beside job {holder[key]}, which has its key {move.key!r}"
        elif holder.get(key) == move.job:
            del holder[key]


def no_wish_is_swallowed(history: History) -> Iterator[tuple[int, str]]:
    """After a committed wish for a rerun, a job of its key began to run; or somebody cancelled the one that would have."""
    for wish in history.wishes:
        if wish.batch not in history.committed:
            continue
        jobs = history.jobs_of_key.get((wish.kind, wish.key), set())
        ran = any(run.start > wish.at for job in jobs for run in history.runs_of_job.get(job, ()))
        forgone = any(
            m.new in ("cancelled", "dead") and m.at > wish.at and m.old == "pending"
            for job in jobs
            for m in history.of_job[job]
        )
        if not ran and not forgone:
            yield (
                min(jobs, default=0),
                f"the wish of batch {wish.batch} for key {wish.key!r} at {wish.at:.3f} led to no run",
            )


def suspects_run_alone(history: History) -> Iterator[tuple[int, str]]:
    """While a suspect runs, its process runs nothing else."""
    suspects = {(m.job, m.lease_new) for m in history.moves if m.new == "reserved" and m.suspect}
    by_pid: dict[int, list[int]] = {}
    for n, run in enumerate(history.runs):
        by_pid.setdefault(run.pid, []).append(n)
    for run in history.runs:
        if (run.job, run.lease) not in suspects:
            continue
        for other in (history.runs[n] for n in by_pid[run.pid]):
            end, other_end = run.end or run.start, other.end or other.start
            if other is not run and other.start < end and run.start < other_end:
                yield run.job, f"a suspect, it ran beside job {other.job} in process {run.pid}"


def harmless_jobs_end_well(history: History) -> Iterator[tuple[int, str]]:
    """What never fails by itself is not dead: no neighbour dies of a poison job, nor of a trouble."""
    for job, moves in history.of_job.items():
        if moves[0].kind in HARMLESS and history.statuses.get(job) in ("dead", "failed"):
            yield job, f"a job of kind {moves[0].kind} ended {history.statuses[job]}"


def pauses_hold(history: History) -> Iterator[tuple[int, str]]:
    """Nothing of a paused queue is claimed."""
    for queue, began, ended in history.pauses:
        for move in history.moves:
            if move.new == "reserved" and move.queue == queue and began + PAUSE_SLACK < move.at < ended:
                yield move.job, f"move {move.seq}: claimed {move.at - began:.1f} s after its queue was paused"


RULES: tuple[Rule, ...] = (
    every_committed_job_ended,
    nothing_rolled_back_exists_or_ran,
    rows_move_as_drawn,
    one_run_and_one_outcome_a_claim,
    no_two_runs_at_once,
    lapses_without_cause,
    frozen_processes_go,
    effects_exactly_once,
    deploys_burn_no_attempt,
    attempts_within_bounds,
    one_live_job_a_key,
    no_wish_is_swallowed,
    suspects_run_alone,
    harmless_jobs_end_well,
    pauses_hold,
)


def check(history: History) -> list[Violation]:
    """All violations of all rules."""
    return [Violation(rule.__name__, job, text) for rule in RULES for job, text in rule(history)]
