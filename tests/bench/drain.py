"""How fast a backlog of no-op jobs is worked off, beside bare SQL that claims and finishes as many rows.

pgjobs: ``run_jobs --drain`` at its default options, from the first claim to the last finish by the rows' own times: handlers run
under all of Django's hygiene, with fences, heartbeats and retries at the ready. Beside it: claims by ctid and token-fenced
finishes of 500 rows, one connection a process. Finished rows stay in both tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import raw
from .results import Bar, Row
from .rig import Rig

TITLE = "Drain of no-op jobs, beside the limit in bare SQL"


@dataclass(frozen=True)
class Size:
    jobs: int = 50_000
    batch: int = 500


QUICK = Size(jobs=300)

SPAN = """
SELECT extract(epoch FROM max(finished_at) - min(started_at))::float8 FROM pgjobs_job
WHERE status = 'done' AND attempts = 1 HAVING count(*) = %s
"""


def drain(rig: Rig, jobs: int, *args: object, **env: str) -> float:
    """Jobs a second of a ``run_jobs --drain``, each of which ran once."""
    rig.empty()
    rig.fill(jobs)
    rig.settle()
    with rig.worker("--drain", *args, **env) as worker:
        worker.wait()
    span = rig.query(SPAN, jobs)
    if span is None:
        raise RuntimeError(f"not all of {jobs} jobs are done, each by one attempt")
    return jobs / float(span)


def raw_drain(rig: Rig, size: Size, connections: int) -> float:
    """The same in bare SQL."""
    rig.query(raw.TABLE)
    rig.query(raw.FILL, size.jobs)
    rig.settle("raw_job")
    rate: float = raw.ask("drain", rig.dsn, connections, size.batch)
    return rate


def measure(rig: Rig, size: Size) -> list[Row]:
    found = rig.in_turns(
        "jobs/s",
        one_process=lambda: drain(rig, size.jobs),
        raw_one_connection=lambda: raw_drain(rig, size, 1),
        two_processes=lambda: drain(rig, size.jobs, "--processes", 2),
        raw_two_connections=lambda: raw_drain(rig, size, 2),
    )
    return [
        Row("one process, default options", found["one_process"], found["raw_one_connection"], Bar(0.50, aim=0.90)),
        Row("two processes", found["two_processes"], found["raw_two_connections"], Bar(0.60, aim=0.90)),
    ]
