"""One function a verb: the only place with a cursor. Each calls the SQL function of its name.

Every function takes a Django connection first, so that the caller decides in whose transaction the move happens.
Plain values go down, plain rows come up.
"""

from .enqueueing import NewJob, enqueue, enqueue_many
from .holding import (
    Claim,
    ClaimedJob,
    bury,
    cancel_held,
    claim,
    fail,
    finish,
    finish_many,
    progress,
    release,
    release_unknown,
    retry,
    snooze,
    still_owned,
)
from .keeping import Beat, Event, beat, expire, forget_worker, prune_old, reap, undertake
from .operating import bury_pending, cancel, pause, prune, requeue, reschedule, resume
from .reading import pending_estimate, schema_problem, server
from .running_now import database_time, run_now
from .scheduling import (
    DueSchedule,
    Ticked,
    declaration_state,
    due_ticks,
    next_tick,
    plan_tick,
    prune_ticks,
    sync_schedules,
    tick,
    tick_failed,
)

__all__ = [
    "Beat",
    "Claim",
    "ClaimedJob",
    "DueSchedule",
    "Event",
    "NewJob",
    "Ticked",
    "beat",
    "bury",
    "bury_pending",
    "cancel",
    "cancel_held",
    "claim",
    "database_time",
    "declaration_state",
    "due_ticks",
    "enqueue",
    "enqueue_many",
    "expire",
    "fail",
    "finish",
    "finish_many",
    "forget_worker",
    "next_tick",
    "pause",
    "pending_estimate",
    "plan_tick",
    "progress",
    "prune",
    "prune_old",
    "prune_ticks",
    "reap",
    "release",
    "release_unknown",
    "requeue",
    "reschedule",
    "resume",
    "retry",
    "run_now",
    "schema_problem",
    "server",
    "snooze",
    "still_owned",
    "sync_schedules",
    "tick",
    "tick_failed",
    "undertake",
]
