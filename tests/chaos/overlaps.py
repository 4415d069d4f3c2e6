"""Whether two runs of a job overlapped, and whether that was excusable; and whether leases lapsed for a reason.

How it is decided, for each pair of runs of one job of which the second began before the first is known to have ended:

1. The first run ended when its handler said so (``end``), or when its process was dead for certain: the killer saw it gone,
   or the census of processes missed it, or the supervisor's undertaker ended its jobs, which it does only for a process that
   was waited for.
2. If the second began before that, the first worker's lease must have been ended by somebody else meanwhile, and the only
   one who may do that to a living process is the reaper, after ``reserved_until``.
3. And that worker must have been silent with reason: in the time from LEASE before ``reserved_until`` until the reaping, it
   was stopped, or cut off from the database, for at least LEASE - HEARTBEAT (its last beat may be a heartbeat old) less
   SLACK. A terminated backend or a restarted server cuts off until the loops have recovered, which they promise to do within
   RECOVERY. A process that a job of its own has frozen is silent too. That the machine had no time for anybody counts too.
4. Two more ends of a reservation may come before the end of the handler, as the guarantees say: an attempt that was recorded as
   timed out because its thread does not stop, and one that was released because GRACE was over.
"""

from __future__ import annotations

from collections.abc import Iterator

from .history import History, Move, Run, Trouble

SLACK = 1.0
RECOVERY = 2.5
"""Seconds that a cut connection counts for: two are promised, and a busy machine takes a little longer."""

LAST_MOMENTS = 5.0
"""Seconds that a process may live after it released what ran when GRACE was over."""

FATAL = ("kill", "stop", "machine stalled")
MOST_REFUNDS = 5
CUTS = ("terminate", "restart", "server away")


def no_two_runs_at_once(history: History) -> Iterator[tuple[int, str]]:
    """No two runs of a job overlap while the first worker is alive and reaches the database within its lease."""
    for job, runs in history.runs_of_job.items():
        for n, first in enumerate(runs):
            for second in runs[n + 1 :]:
                ended = ended_at(history, first)
                if ended is not None and ended <= second.start:
                    continue
                if reason := _inexcusable(history, first, second, ended):
                    yield job, reason


def lapses_without_cause(history: History) -> Iterator[tuple[int, str]]:
    """A lease lapses, or an undertaker comes, only after something happened to the worker; a deploy is no such thing."""
    for move in history.moves:
        if move.old != "reserved":
            continue
        if move.who == "pgjobs keeper":
            if move.until_old is None or move.at < move.until_old:
                yield move.job, f"move {move.seq}: reaped before its lease lapsed"
            elif _silence(history, move) < _enough(history) and not killed(history, move.pid, move.at):
                yield move.job, f"move {move.seq}: the lease of {move.worker} lapsed, and nothing had happened to it"
        elif move.who == "pgjobs undertaker" and not (_given_back(history, move) or killed(history, move.pid, move.at)):
            yield move.job, f"move {move.seq}: {move.worker} died, and nothing had happened to it"


def _given_back(history: History, move: Move) -> bool:
    """Whether a worker was told to stop, and its supervisor gave back what still ran: the attempt too, while it may."""
    told = any(t.kind == "deploy" and move.pid in t.pids and t.began <= move.at for t in history.troubles)
    return told and (move.attempts_new < (move.attempts_old or 0) or (move.refunds_old or 0) >= MOST_REFUNDS)


def ended_at(history: History, run: Run) -> float | None:
    """When a run was over for certain; None when nobody can say."""
    known = [run.end] if run.end is not None else []
    died = history.deaths.get(run.pid)
    if died is not None and died >= run.start:
        known.append(died)
    return min(known, default=None)


def _inexcusable(history: History, first: Run, second: Run, ended: float | None) -> str:
    """Why two overlapping runs break the promise; empty when they do not."""
    said = f"the run in process {first.pid} began at {first.start:.3f} and ended at {ended and round(ended, 3)}; "
    said += f"another began in {second.pid} at {second.start:.3f}; "
    endings = [history.endings[key] for lease in first.leases if (key := (first.job, lease)) in history.endings]
    if not endings:
        return said + "the first one's lease was never ended"
    ending = max(endings, key=lambda move: move.at)
    if ending.who == "pgjobs keeper":
        if ending.until_old is None or ending.at < ending.until_old:
            return said + "the first one's lease had not lapsed"
        silent = _silence(history, ending)
        return (
            "" if silent >= _enough(history) else said + f"the first one's worker was cut off for {silent:.1f} s only"
        )
    if (first.job, ending.worker) in history.timeouts:
        return ""
    if ending.who == "pgjobs claimer" and ended is None:
        return ""  # released at the end of GRACE; its process ended without a word, as it should
    if ending.who == "pgjobs claimer" and ended is not None and ended < ending.at + LAST_MOMENTS:
        return ""
    if ended is None and ending.at <= second.start and ending.who in ("pgjobs completer", "chaos handler"):
        return ""  # the worker recorded how it ended, which it does after the end; only the journal's line is missing
    return said + f"the first one's lease was ended by {ending.who}"


def _silence(history: History, ending: Move) -> float:
    """Seconds for which a worker could not have beaten, in the last lease before its reservation was ended."""
    since = (ending.until_old or ending.at) - history.lease
    # A process with a deadly job does nothing any more; one that is frozen waits for its watchdog.
    fatal = [Trouble(kind="stop", began=at, ended=ending.at, pids=frozenset({pid})) for pid, at in history.deadly]
    return _covered([*history.troubles, *fatal], ending.pid, since, ending.at)


def _enough(history: History) -> float:
    return history.lease - history.heartbeat - SLACK


def _covered(troubles: list[Trouble], pid: int, since: float, until: float) -> float:
    """Seconds of a stretch of time that troubles of a process cover, each second once."""
    spans = []
    for trouble in troubles:
        if trouble.kind.startswith(CUTS):
            spans.append((trouble.began, trouble.ended + RECOVERY))
        elif trouble.kind == "machine stalled" or (trouble.kind.startswith("stop") and pid in trouble.pids):
            spans.append((trouble.began, trouble.ended))
    covered, reached = 0.0, since
    for began, ended in sorted(spans):
        began, ended = max(began, reached), min(ended, until)
        if ended > began:
            covered, reached = covered + ended - began, ended
    return covered


def killed(history: History, pid: int, by: float) -> bool:
    """Whether a process was dead by a time, and had a cause of death: a killer, a deadly job, or its watchdog in a stop."""
    died = history.deaths.get(pid)
    if died is None or died > by:
        return False
    since = died - 2 * history.lease
    if any(of == pid and since < at <= died for of, at in history.deadly):
        return True
    return any(
        t.began <= died and t.ended > since and (pid in t.pids or not t.pids) and t.kind.startswith(FATAL)
        for t in history.troubles
    )
