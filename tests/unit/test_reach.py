"""How long a worker that fell asleep goes on looking for what was committed without a word."""

from pgjobs.store import Claim
from pgjobs.worker.reach import LINGER, LONGEST_NAP, NAP, Sleeper

FOREVER = float("inf")


def asleep(settled: int) -> Claim:
    return Claim([], asleep=True, settled=settled)


def fallen(settled: int, unsettled: int) -> Claim:
    return Claim([], asleep=True, settled=settled, unsettled=unsettled)


def test_it_looks_until_a_turn_began_after_all_older_transactions() -> None:
    one = Sleeper()
    one.saw(fallen(10, 10))
    assert (one.asleep, one.nap()) == (True, NAP), "what came between its search and the lock was not seen yet"
    one.saw(asleep(9))
    assert one.nap() == 2 * NAP
    one.saw(asleep(10))
    assert one.nap() == FOREVER


def test_a_second_place_of_the_same_turn_says_nothing_of_the_first() -> None:
    """The first place was read before the lock was taken, and its jobs may have come since."""
    one = Sleeper()
    one.saw(fallen(10, 10))
    one.saw(asleep(11))
    assert one.nap() == NAP
    one.saw(asleep(9))
    one.saw(asleep(12))
    assert one.nap() == 2 * NAP, "the first place was read when an older transaction was still open"
    one.saw(asleep(12))
    one.saw(asleep(12))
    assert one.nap() == FOREVER


def test_who_finds_a_job_is_awake_and_settles_anew() -> None:
    one = Sleeper()
    one.saw(fallen(10, 10))
    one.saw(Claim([], asleep=False))
    assert (one.asleep, one.nap()) == (False, LINGER)
    one.saw(fallen(20, 20))
    assert one.nap() == NAP


def test_a_lock_that_cannot_be_had_is_tried_less_and_less_often() -> None:
    one = Sleeper()
    naps = []
    for _ in range(9):
        one.saw(Claim([], asleep=False))
        naps.append(one.nap())
    assert naps[:3] == [LINGER, 2 * LINGER, 4 * LINGER]
    assert naps[-1] == LONGEST_NAP


def test_a_new_session_is_awake() -> None:
    one = Sleeper()
    assert not one.in_session("first")
    one.saw(fallen(10, 10))
    assert one.in_session("first")
    assert not one.in_session("second")
