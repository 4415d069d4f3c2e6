"""What became of the jobs: read from their rows, as the admin does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.db import connection
from django.db.models import Count, Max, Min, QuerySet, Sum

from example_project.demo.flows import Step
from pgjobs import store
from pgjobs.models import Job
from pgjobs.states import FINAL


@dataclass(frozen=True, slots=True)
class Seen:
    """A step, and where its jobs stand now."""

    step: Step
    statuses: dict[str, int]
    attempts: int
    seconds: float | None  # from the first start to the last end
    progress: str
    error: str

    @property
    def finished(self) -> int:
        """How many of its jobs have ended, one way or another."""
        return sum(self.statuses.get(status, 0) for status in FINAL)

    @property
    def ended(self) -> bool:
        return self.finished == (self.step.many or 1)

    @property
    def status(self) -> str:
        """The status in words: of one job its own, of many how far they are."""
        if self.step.many is None:
            return next(iter(self.statuses), "gone")
        return "done" if self.statuses == {"done": self.step.many} else f"{self.finished:,} ended"

    def complaint(self) -> str:
        """What is not as it should be, now that the time is over; '' if all is well."""
        step, wrong = self.step, []
        if self.statuses != {step.status: step.many or 1}:
            wrong.append(", ".join(f"{count:,} {status}" for status, count in self.statuses.items()) or "no job")
        if step.attempts not in (None, self.attempts):
            wrong.append(f"{self.attempts} attempts")
        return "; ".join(wrong) or step.doubt()


def look(step: Step) -> Seen:
    """Read the jobs of a step."""
    jobs = jobs_of(step)
    groups: Iterable[Mapping[str, Any]] = jobs.values("status").annotate(
        jobs=Count("pk"),
        tries=Sum("attempts"),
        first=Min("started_at"),
        last=Max("finished_at"),
        error=Max("last_error"),
    )
    first = min((group["first"] for group in groups if group["first"]), default=None)
    last = max((group["last"] for group in groups if group["last"]), default=None)
    said = jobs.values_list("progress", flat=True).first() if step.many is None else None
    return Seen(
        step=step,
        statuses={group["status"]: group["jobs"] for group in groups},
        attempts=sum(group["tries"] for group in groups),
        seconds=(last - first).total_seconds() if first and last else None,
        progress=said["text"] if said else "",
        error=next((line for group in groups for line in (group["error"] or "").splitlines() if line.strip()), ""),
    )


def take_back(steps: Iterable[Step]) -> None:
    """Cancel what has not run: a demo that was interrupted leaves no work to the next one."""
    waiting = [job for step in steps for job in jobs_of(step).exclude(status__in=FINAL).values_list("pk", flat=True)]
    store.cancel(connection, waiting, by="demo")


def jobs_of(step: Step) -> QuerySet[Job]:
    """The job of a step, or those that it enqueued: their ids are higher, which spares a walk through the table."""
    if step.many is None:
        return Job.objects.filter(pk=step.job_id)
    return Job.objects.filter(pk__gt=step.job_id, parent_id=step.job_id, kind=step.kind)
