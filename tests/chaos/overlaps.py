"""Whether two runs of a job overlapped, and whether that was excusable; and whether leases lapsed for a reason.

The promise: never two runs at the same time while the first worker is alive and reaches the database within its lease. How it
is decided, for each pair of runs of one job of which the second began before the first is known to have ended:

1. The first run ended when its handler said so (``end``), or when its process was dead for certain: the killer saw it gone,
   or the census of processes missed it. (The census looks every few milliseconds, the supervisor waits for its processes: its
   undertaker's word counts as the time of a death if the census comes to see the same within CENSUS.)
2. If the second began before that, the first worker's lease must have been ended by somebody else meanwhile, and the only
   one who may do that to a living process is the reaper, after ``reserved_until``.
3. And that worker must have been silent with reason: of the lease that lapsed, from LEASE before ``reserved_until`` to
   ``reserved_until``, it was stopped, or cut off from the database, for at least LEASE - HEARTBEAT (its last beat may be a
   heartbeat old) less SLACK. What happened after ``reserved_until`` excuses nothing. A terminated backend or a restarted
   server cuts off until the loops have recovered, which they promise to do within RECOVERY. A process that a job of its own
   has frozen is silent too, and ``frozen_processes_go`` says for how long it may be there. That the machine had no time for
   anybody counts too.
4. Two more ends of a reservation may come before the end of the handler, as the guarantees say: an attempt that its worker
   recorded as timed out because its thread does not stop (after which that process claims nothing any more), and one that
   was released because GRACE was over, in a process without a supervisor, which is gone LAST_MOMENTS later.
"""

from __future__ import annotations

from collections.abc import Iterator

from .history import History, Move, Run, Trouble

SLACK = 1.0
RECOVERY = 2.5
"""Seconds that a cut connection counts for: two are promised, and a busy machine takes a little longer."""

LAST_MOMENTS = 5.0
"""Seconds that a process may live after it released what ran when GRACE was over."""

STANDSTILL = 2.0
"""Seconds for which a process must have been stopped before its watchdog may be the cause of its death: longer than any brief
stop lasts. (Troubles of the database keep no loop from turning, but they may be what it was doing in the seconds before.)
"""

STOPS = ("stop", "machine stalled")
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
            elif silence(history, move) < _enough(history) and not killed(history, move.pid, move.at):
                yield move.job, f"move {move.seq}: the lease of {move.worker} lapsed, and nothing had happened to it"
        elif move.who == "pgjobs undertaker" and not (_given_back(history, move) or killed(history, move.pid, move.at)):
            yield move.job, f"move {move.seq}: {move.worker} died, and nothing had happened to it"


def frozen_processes_go(history: History) -> Iterator[tuple[int, str]]:
    """A process that a job has killed or frozen is gone before its leases lapse, unless it was stopped meanwhile."""
    for pid, at in history.deadly:
        died = history.deaths.get(pid)
        until = at + history.lease
        stopped = covered(history.troubles, STOPS, pid, at, died or until)
        if died is None or died > until + stopped + SLACK:
            yield 0, f"process {pid} was to die by its own job at {at:.3f}, and was there until {died or 'the end'}"


def _given_back(history: History, move: Move) -> bool:
    """Whether a worker was told to stop, and its supervisor gave back what still ran, the attempt too while it may; or
    finished what had returned, which the worker itself could not record in time.
    """
    told = any(t.kind == "deploy" and move.pid in t.pids and t.began <= move.at for t in history.troubles)
    if move.new == "done":
        runs = history.runs_of_job.get(move.job, ())
        return told and any(move.lease_old in run.leases and run.how == "returned" for run in runs)
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
        silent = silence(history, ending)
        return (
            "" if silent >= _enough(history) else said + f"the first one's worker was cut off for {silent:.1f} s only"
        )
    if ending.who == "pgjobs completer" and (first.job, ending.worker) in history.timeouts:
        claims = any(m.who == "pgjobs claimer" and m.new == "reserved" and m.at > ending.at + SLACK
                     for m in history.of_worker.get(ending.worker or "", ()))  # fmt: skip
        return said + "its thread was stuck, and its worker claimed more" if claims else ""
    if ending.who == "pgjobs claimer" and ended is not None and ended < ending.at + LAST_MOMENTS:
        return ""
    return said + f"the first one's lease was ended by {ending.who}"


def silence(history: History, ending: Move) -> float:
    """Seconds for which a worker could not have beaten, of the lease that lapsed before its reservation was ended."""
    until = ending.until_old or ending.at
    # A process with a deadly job does nothing any more; one that is frozen waits for its watchdog.
    fatal = [Trouble(kind="stop", began=at, ended=until, pids=frozenset({pid})) for pid, at in history.deadly]
    return covered([*history.troubles, *fatal], (*CUTS, *STOPS), ending.pid, until - history.lease, until)


def _enough(history: History) -> float:
    return history.lease - history.heartbeat - SLACK


def covered(troubles: list[Trouble], kinds: tuple[str, ...], pid: int, since: float, until: float) -> float:
    """Seconds of a stretch of time that troubles of some kinds, of a process, cover; each second once."""
    spans = []
    for trouble in troubles:
        if trouble.kind.startswith(kinds) and (not trouble.pids or pid in trouble.pids):
            recovery = RECOVERY if trouble.kind.startswith(CUTS) else 0.0
            spans.append((trouble.began, trouble.ended + recovery))
    total, reached = 0.0, since
    for began, ended in sorted(spans):
        began, ended = max(began, reached), min(ended, until)
        if ended > began:
            total, reached = total + ended - began, ended
    return total


def killed(history: History, pid: int, by: float) -> bool:
    """Whether a process was dead by a time, and had a cause of death: a killer, a deadly job, or its watchdog in a stop."""
    died = history.deaths.get(pid)
    if died is None or died > by:
        return False
    if any(of == pid and died - 2 * history.lease < at <= died for of, at in history.deadly):
        return True
    if any(t.kind.startswith("kill") and pid in t.pids and t.began <= died <= t.ended for t in history.troubles):
        return True
    return covered(history.troubles, STOPS, pid, died - history.lease, died) >= STANDSTILL
