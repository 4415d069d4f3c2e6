"""What a person reads at the end: figures, and the history of a job that breaks a promise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from .checker import Violation
from .history import History


def rescues(history: History, kind: str) -> Iterator[tuple[float, float]]:
    """For each job that was lost with a process killed by a trouble: seconds until it was due again, and until it was
    claimed again. Only for those that were to be due at once: later pauses are backoff, and meant to be.
    """
    killed = {pid: t.began for t in history.troubles if t.kind == kind for pid in t.pids}
    for moves in history.of_job.values():
        for ending, claim in pairwise(moves):
            lost = ending.who in ("pgjobs keeper", "pgjobs undertaker") and ending.old == "reserved"
            if lost and claim.new == "reserved" and killed.get(ending.pid, ending.at) < ending.at >= claim.run_after:
                yield ending.at - killed[ending.pid], claim.at - killed[ending.pid]


def summary(history: History, seconds: float) -> Iterator[str]:
    """The figures."""
    statuses = Counter(history.statuses.values())
    yield f"{len(history.statuses):,} jobs: " + ", ".join(f"{n:,} {status}" for status, n in statuses.most_common())
    rolled_back = sum(batch not in history.committed for batch in history.created.values())
    yield f"{rolled_back:,} more were rolled back; {len(history.wishes):,} wishes for a rerun"
    processes = len({run.pid for run in history.runs})
    yield f"{len(history.runs):,} runs in {processes} processes, {sum(not run.how for run in history.runs)} of them cut short"
    ended: Counter[str] = Counter()
    for (who, _), n in _ends(history).items():
        ended[who] += n
    yield "reservations ended by: " + ", ".join(f"{who} {n:,}" for who, n in ended.most_common())
    lapsed = [f"{n} {status}" for (who, status), n in _ends(history).items() if who == "keeper"]
    yield f"leases that lapsed: {', '.join(lapsed) or 'none'}"
    kinds = Counter(trouble.kind for trouble in history.troubles)
    yield f"{len(history.troubles)} troubles in {seconds:.0f} s: " + ", ".join(
        f"{kind} {n}" for kind, n in sorted(kinds.items())
    )
    for kind in ("kill worker", "kill tree"):
        if some := list(rescues(history, kind)):
            due, claimed = (max(took) for took in zip(*some, strict=True))
            yield f"{len(some)} jobs lost by {kind!r}: due again within {due:.2f} s, running again within {claimed:.2f} s"


def _ends(history: History) -> Counter[tuple[str, str]]:
    """How many reservations each role ended, and with what."""
    return Counter((m.who.removeprefix("pgjobs "), m.new) for m in history.moves if m.old == "reserved")


def failures(history: History, violations: list[Violation], most: int = 12) -> Iterator[str]:
    """What is wrong, with the story of each job that shows it."""
    by_rule = Counter(violation.rule for violation in violations)
    for rule, n in by_rule.most_common():
        yield f"BROKEN: {rule.replace('_', ' ')}: {n}"
    for violation in violations[:most]:
        yield f"\n{violation.rule.replace('_', ' ')}: job {violation.job}: {violation.text}"
        yield from story(history, violation.job)


def story(history: History, job: int) -> Iterator[str]:
    """All that is known of a job, in order."""
    lines: list[tuple[float, str]] = []
    for m in history.of_job.get(job, ()):
        who = f"{m.worker}, by {m.who}" if m.worker else f"by {m.who}"
        lease = m.lease_new or m.lease_old
        lines.append(
            (m.at, f"move {m.seq}: {m.old or 'new'} → {m.new}, attempt {m.attempts_new}, lease {lease}, {who}")
        )
    for r in history.runs_of_job.get(job, ()):
        lines.append((r.start, f"    run begins in process {r.pid}, lease {r.lease}"))
        if r.end is not None:
            lines.append((r.end, f"    run ends in process {r.pid}: {r.how}"))
    pids = {r.pid for r in history.runs_of_job.get(job, ())}
    first = min((at for at, _ in lines), default=0) - history.lease
    last = max((at for at, _ in lines), default=0)
    lines += [
        (t.began, f"        {t.kind} {sorted(t.pids & pids) or ''} until {t.ended:.3f}")
        for t in history.troubles
        if t.ended > first and t.began < last and (not t.pids or t.pids & pids)
    ]
    for at, text in sorted(lines):
        yield f"  {at:.3f}  {text}"
