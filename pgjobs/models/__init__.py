"""The schema. Rows of jobs change only by the functions in ``pgjobs/sql``; these models are for reading."""

from .history import Attempt, Stat
from .job import ArchivedJob, Job, JobColumns
from .operation import Pause, Rerun, Worker
from .schedule import Declaration, Schedule, Tick

__all__ = [
    "ArchivedJob",
    "Attempt",
    "Declaration",
    "Job",
    "JobColumns",
    "Pause",
    "Rerun",
    "Schedule",
    "Stat",
    "Tick",
    "Worker",
]
