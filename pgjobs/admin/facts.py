"""What the sentences about a job are made of, and why no worker would take it now."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.utils.translation import gettext as _

from ..conf import Settings
from ..models import Job, Pause, Worker
from .wording import clock, visible


@dataclass(frozen=True, slots=True)
class Facts:
    """What the sentences are made of. ``last_error`` is free of secrets; ``workers`` are those alive and not stopping."""

    job: Job
    now: dt.datetime
    settings: Settings
    last_error: str = ""
    pauses: Sequence[Pause] = ()
    workers: Sequence[Worker] = ()
    known_here: bool = True
    rerun_wished: bool = False

    @property
    def tries(self) -> str:
        return _("%(n)d of %(most)d attempts") % {"n": self.job.attempts, "most": self.job.max_attempts}


def obstacles(facts: Facts) -> Iterator[str]:
    """Why no worker would take it now, the decisive one first."""
    job = facts.job
    yield from (paused(pause, facts.now) for pause in facts.pauses)
    if not facts.workers:
        yield _("No worker is alive. Start one with “manage.py run_jobs”.")
        return
    serving = [worker for worker in facts.workers if serves(worker, job.queue)]
    if not serving:
        yield _("No live worker serves queue “%(queue)s”.") % {"queue": visible(job.queue)}
    elif not any(not worker.kinds or job.kind in worker.kinds for worker in serving):
        yield _("No live worker of this queue knows the kind “%(kind)s”: it waits for one that does.") % {
            "kind": visible(job.kind)
        }


def paused(pause: Pause, now: dt.datetime) -> str:
    """What is paused, by whom, until when and why."""
    what = _("Queue “%(name)s” is paused") if pause.scope == "queue" else _("Jobs of kind “%(name)s” are paused")
    said = [what % {"name": visible(pause.name)}]
    if pause.by:
        said.append(_("by %(name)s") % {"name": visible(pause.by)})
    if pause.until is None:
        said.append(_("until somebody resumes it"))
    else:
        said.append(_("until %(time)s") % {"time": clock(pause.until, now)})
    return " ".join(said) + (f": {visible(pause.reason).rstrip('.')}." if pause.reason else ".")


def serves(worker: Worker, queue: str) -> bool:
    """Whether a worker takes jobs of a queue."""
    return (not worker.queues or queue in worker.queues) and queue not in worker.exclude_queues
