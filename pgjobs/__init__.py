"""Background jobs for Django in the PostgreSQL it already runs."""

from .api.context import JobContext
from .api.enqueueing import aenqueue, aenqueue_many, enqueue, enqueue_many
from .api.jobs import job
from .backoff import Exponential, Fixed, Linear
from .exceptions import Cancel, Fail, Retry, Snooze

__all__ = [
    "Cancel",
    "Exponential",
    "Fail",
    "Fixed",
    "JobContext",
    "Linear",
    "Retry",
    "Snooze",
    "aenqueue",
    "aenqueue_many",
    "enqueue",
    "enqueue_many",
    "job",
]
