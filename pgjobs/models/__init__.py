"""The schema. Rows of jobs change only by the functions in ``pgjobs/sql``; these models are for reading."""

from .history import Attempt, Stat
from .job import ArchivedJob, Job, JobColumns
from .operation import Pause, Rerun, Worker
from .schedule import Schedule, Tick

__all__ = ["ArchivedJob", "Attempt", "Job", "JobColumns", "Pause", "Rerun", "Schedule", "Stat", "Tick", "Worker"]
