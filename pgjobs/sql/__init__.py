"""The newest text of every SQL function, one file each, named by its verb.

``python -m pgjobs.sql`` prints the script that installs them, which is what a migration freezes.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

FUNCTIONS = (
    # formulas and small helpers
    "next_run_after",
    "bell",
    "hold",
    "still_owned",
    # ways in
    "enqueue",
    "enqueue_many",
    "rerun",
    # moves by a holder
    "claim_many",
    "claim",
    "heartbeat",
    "finish_many",
    "retry",
    "bury",
    "fail",
    "snooze",
    "release",
    "release_unknown",
    "cancel_held",
    "progress",
    "finish",
    # moves by others
    "reap",
    "requeue_timed_out",
    "cancel",
    "reschedule",
    "bury_pending",
    "requeue",
    "expire",
    "prune",
    "prune_old",
    "archive",
    "pause",
    "resume",
    # schedules
    "next_tick",
    "due_ticks",
    "tick",
    "plan_tick",
    "tick_failed",
    "prune_ticks",
    "run_now",
    "declaration_state",
    "sync_schedules",
    "schedule_triggers",
    # the keeper
    "beat",
    "undertake",
    "triggers",
)
"""Files in the order of installation: what returns rows of a table, or is a trigger's function, comes before its user."""

# Functions remember the search path of their installation (SET search_path FROM CURRENT), so that a qualified call works
# from any session. It is pinned to the one schema of the tables: "$user" would mean something else for each caller.
PIN = """SELECT set_config('pgjobs.search_path', current_setting('search_path'), true),
       set_config('search_path', quote_ident(current_schema()), true);
"""
UNPIN = "SELECT set_config('search_path', current_setting('pgjobs.search_path'), true);\n"


@cache
def text(name: str) -> str:
    """The text of ``pgjobs/sql/<name>.sql``."""
    return files(__name__).joinpath(f"{name}.sql").read_text(encoding="utf-8")


def script() -> str:
    """Everything that installs the functions and triggers; to be run in one transaction."""
    return "\n".join([PIN, *(text(name) for name in FUNCTIONS), UNPIN])
