"""What a claim loop knows of the queues between two claims: how far they were read, and whether inserters will tell it more."""

from __future__ import annotations

import time

from .. import store

SLOW = 0.005
SLOW_EACH = 0.000_05
"""Seconds, and seconds for each job, beyond which a search from the beginning is slow: it walks what it does not want."""

SWEEP = 1.0
SWEEP_TIMES = 10
"""While that is so, everything is read from the beginning each second, or after ten times as long as that took."""

LINGER = 0.01
"""Seconds between a claim that found some jobs and the next: who inserts meanwhile need not tell. (Each notification takes a
lock of the whole server at its commit.)"""

NAP, LONGEST_NAP = 0.05, 0.8
"""Seconds between looks for what was committed without a word, while transactions from before the falling asleep are open."""


class Reach:
    """How far the queues were read for one place.

    As a rule each claim reads them from the beginning. Where that is slow (dead rows that a long transaction keeps, a mountain
    of jobs that nobody here can run), the next ones go on where the last one stopped. What lies behind waits for the next sweep.
    """

    def __init__(self) -> None:
        self._read: str | None = None
        self._session: object = None
        self._sweep_at = 0.0
        self._partly = False

    def since(self, session: object) -> str | None:
        """What to give to the next claim in a database session; None: read from the beginning."""
        if session is not self._session or time.monotonic() >= self._sweep_at:
            return None
        return self._read

    def saw(self, claim: store.Claim, session: object) -> None:
        """A claim was made."""
        self._partly = not claim.swept
        if claim.swept:
            slow = claim.took > SLOW + SLOW_EACH * len(claim.jobs)
            self._read, self._session = (claim.read if slow else None), session
            self._sweep_at = time.monotonic() + max(SWEEP, SWEEP_TIMES * claim.took)
        else:
            self._read = claim.read

    def sweep(self) -> bool:
        """Read from the beginning next time; whether the last claim did not."""
        self._read = None
        return self._partly

    @property
    def behind(self) -> float:
        """Seconds until something that lies behind has to be looked for; infinite when nothing can."""
        return max(0.0, self._sweep_at - time.monotonic()) if self._partly else float("inf")


class Sleeper:
    """Whether this worker is asleep: inserters see that it wants to be told.

    Who inserted before it fell asleep saw a worker awake, and told nobody; should such a transaction still be open, its jobs
    come without a word. So the worker looks again, first soon, then less often, until a whole turn of claims (one for each
    place) began after all of them had ended.
    """

    def __init__(self) -> None:
        self.asleep = False
        self._session: object = None
        self._unsettled: int | None = None
        self._settled: int | None = None
        """What the first claim of this turn saw; None while there was none, or in the turn of the falling asleep."""
        self._turned = False
        self._nap = LINGER

    def in_session(self, session: object) -> bool:
        """Whether it is asleep in a database session: a lost connection took the lock with it."""
        if session is not self._session:
            self._session = session
            self._wake()
        return self.asleep

    def saw(self, claim: store.Claim) -> None:
        """A claim was made in the session."""
        if claim.unsettled is not None:  # of this turn some claims came before the lock
            self.asleep, self._unsettled, self._nap, self._turned = True, claim.unsettled, NAP, True
        elif not claim.asleep:
            if self.asleep:
                self._wake()
        elif not self._turned:
            self._settled, self._turned = claim.settled, True

    def nap(self) -> float:
        """Seconds until the next look, after a turn of claims that found nothing."""
        if self._unsettled is not None and self._settled is not None and self._settled >= self._unsettled:
            self._unsettled = None
        self._settled, self._turned = None, False
        if self.asleep and self._unsettled is None:
            return float("inf")
        nap, self._nap = self._nap, min(2 * self._nap, LONGEST_NAP)  # not asleep: somebody held the lock, so try again
        return nap

    def _wake(self) -> None:
        self.asleep, self._unsettled, self._settled, self._turned, self._nap = False, None, None, False, LINGER
