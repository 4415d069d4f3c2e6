"""Jobs in the Django admin: look, and ask for moves. Nothing is edited, and every move is a verb of the store.

Permissions (of the model Job): ``view_job`` to look; ``view_payload`` for payloads, results and tracebacks; ``retry_job``,
``cancel_job`` (also: move to the dead letters) and ``delete_job`` (delete finished ones) for the moves. Schedules are rows
that people edit: Django's own permissions of that model, of which ``change_schedule`` also runs, pauses and sees payloads.
"""

from .jobs import JobAdmin
from .pauses import PauseAdmin
from .schedules import ScheduleAdmin
from .workers import WorkerAdmin

__all__ = ["JobAdmin", "PauseAdmin", "ScheduleAdmin", "WorkerAdmin"]
