"""When a supervisor that was told to stop kills what still runs, when it ends its undertakers, and when it is over."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from .process import LAST_MOMENTS

OVERDUE = 0.5
"""Seconds after its own deadline at which a stopping process is killed."""

LAST_RITES = 2.0
"""Seconds that the undertakers of what was killed then have, for a database that may be gone."""

OVER = 5.0
"""Seconds after GRACE at which it is over, whatever still hangs."""

SPARE = 0.6
"""Seconds before that at which the last undertaker ends: the supervisor has to see it, and to end too."""


class Ending:
    """Times by the monotonic clock; ``give_up`` is called when it has to be over, from within whatever goes on then."""

    def __init__(self, give_up: Callable[[], None]) -> None:
        self._give_up = give_up
        self._before: signal._HANDLER = None
        self._armed = False
        self._over_at = float("inf")
        self.kill_at = 0.0
        """When what still runs is killed; 0 while nobody has asked for the end."""
        self.end_at = 0.0
        """When the undertakers are, too."""

    def begin(self, grace: float) -> None:
        """Somebody asked for the end: what runs has ``grace`` seconds."""
        self._over_at = time.monotonic() + grace + OVER
        self.at_once(grace + LAST_MOMENTS + OVERDUE)
        self.arm(grace + OVER - SPARE / 4)

    def at_once(self, seconds: float = 0.0) -> None:
        """Kill what runs now, or in so many seconds; sooner, if that was agreed on already."""
        kill_at = time.monotonic() + seconds
        self.kill_at = min(self.kill_at, kill_at) if self.kill_at else kill_at
        self.end_at = min(self.kill_at + LAST_RITES, self._over_at - SPARE)

    def arm(self, seconds: float) -> None:
        """A signal ends what nothing else does: a child that cannot be killed, a terminal that takes no more output."""
        if not self._armed:
            self._armed = True
            self._before = signal.signal(signal.SIGALRM, lambda *_: self._give_up())
        signal.setitimer(signal.ITIMER_REAL, seconds)

    def disarm(self) -> None:
        """It came to its end."""
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
