"""What a dead worker process held, ended by a short-lived process that its supervisor forks at once."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from .. import signals, store
from ..conf import Settings
from .board import Entry, State
from .connection import close, dedicated, ready
from .keeper import Reaped
from .loop import Trouble

logger = logging.getLogger("pgjobs")

DONE, GAVE_UP, SUSPECTS = 0, 10, 100
"""Exit codes: nothing is left; the leases will have to lapse; nothing is left, and so many more than 100 must run alone."""

MOST_SUSPECTS = 100
"""More are not counted: they are found anyway."""


def undertake(
    settings: Settings, worker: str, entries: Sequence[Entry], cause: str, *, interrupted: bool = False, patience: float
) -> int:
    """End everything that ``worker`` held, trying for ``patience`` seconds; an exit code.

    ``interrupted``: it stopped as it was told to, and what still ran is given back. Only now, since another worker starts
    it at once: no two runs of a job live at the same time.
    """
    connection = dedicated(settings.DATABASE, "undertaker")
    trouble = Trouble("undertaker")
    # One that raised has run, and may be what killed the process: its attempt must not be given back as if it had not begun.
    running = [(e.id, e.lease) for e in entries if e.state in (State.RUNNING, State.RAISED)]
    returned = [(e.id, e.lease) for e in entries if e.state is State.RETURNED]
    deadline = time.monotonic() + patience
    suspects = 0
    try:
        while time.monotonic() < deadline:
            try:
                if interrupted and running:
                    ids, leases = [id_ for id_, _ in running], [lease for _, lease in running]
                    outcomes = store.release(ready(connection), ids, leases, started=True, reason=cause)
                    running = [(id_, lease) for id_, lease in running if outcomes.get(id_) == "busy"]
                    if running:
                        time.sleep(0.05)
                        continue
                events = store.undertake(ready(connection), worker, running=running, returned=returned, cause=cause)
                trouble.over()
            except Exception as e:  # noqa: BLE001
                time.sleep(trouble.met(e, connection))
                continue
            for event, id_, kind, queue, status, attempts in events:
                suspects += event in ("crashed", "suspect") and status == "pending"
                _tell(event, store.Event(event, id_, kind, queue, status, attempts, worker, None), cause)
            if not any(event[0] == "left" for event in events):
                return SUSPECTS + min(suspects, MOST_SUSPECTS) if suspects else DONE
            time.sleep(0.05)  # the server has not noticed yet that the process is gone, and finishes its last statement
        return GAVE_UP
    finally:
        close(connection)


def _tell(name: str, event: store.Event, cause: str) -> None:
    job = Reaped(event)
    if name == "crashed" and event.status == "dead":
        logger.error("job %s %s: dead after attempt %s (%s)", job.id, job.kind, job.attempt, cause)
        signals.send(signals.job_dead, str(job.kind), job=job, attempt=job.attempt, exc_info=None)
    elif name == "crashed":
        logger.warning(
            "job %s %s: attempt %s ended with its worker, %s again (%s)",
            job.id,
            job.kind,
            job.attempt,
            event.status,
            cause,
        )
    elif name == "suspect":
        logger.warning("job %s %s: ran when its worker died, goes on alone (%s)", job.id, job.kind, cause)
