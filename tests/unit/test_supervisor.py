"""The supervisor's own decisions, without a process: what happens in the moment of a fork."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from pgjobs.conf import Settings
from pgjobs.worker import supervisor
from pgjobs.worker.board import Board
from pgjobs.worker.ending import LAST_RITES
from pgjobs.worker.process import LAST_MOMENTS, Options
from pgjobs.worker.supervisor import Supervisor


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The signals that it sends: (pid, signal)."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(supervisor, "_send", lambda pid, number: found.append((pid, number)))
    monkeypatch.setattr(supervisor, "close_all", lambda: None)
    return found


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Iterator[Supervisor]:
    """A supervisor that meets signals."""
    one = Supervisor(Settings(), Options(), lambda line: None)
    monkeypatch.setattr(one._ending, "arm", lambda seconds: None)  # the test runner's alarm is no other
    before = {number: signal.signal(number, one._on_signal) for number in supervisor.SIGNALS}
    yield one
    for number, handler in before.items():
        signal.signal(number, handler)


def test_without_fork_it_is_refused_with_a_clear_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    with pytest.raises(CommandError, match=r"run_jobs needs os\.fork\(\), which this platform does not have"):
        call_command("run_jobs")


@pytest.mark.parametrize("number", supervisor.SIGNALS)
def test_a_signal_while_it_forks_reaches_the_new_process(
    one: Supervisor, sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Else the process would work on until it is killed, half a minute later, with its jobs."""

    def fork() -> int:
        signal.pthread_kill(threading.get_ident(), number)  # this thread: the real supervisor has no other
        return 4242

    monkeypatch.setattr(os, "fork", fork)
    one._fork_worker(0, alone=False)
    assert sent == [(4242, signal.SIGTERM)]


def test_a_signal_just_before_it_forks_leaves_nothing_to_stop(
    one: Supervisor, sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "close_all", lambda: signal.pthread_kill(threading.get_ident(), signal.SIGTERM))
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("it forked, and nobody would stop the new process"))
    one._fork_worker(0, alone=False)
    assert (one._children, sent) == ({}, [])


def test_a_fork_that_fails_is_tried_again_later(
    one: Supervisor, sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A limit of processes, or of memory: no reason to give up all the others."""

    def fork() -> int:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fork)
    one._fork_worker(0, alone=False)
    one._fork_worker(0, alone=True)
    assert "cannot start a process" in caplog.text
    assert one._children == {}
    assert one._suspects, "the suspects still wait"
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("too soon"))
    now = one._start_at[0]
    one._suspects = 0
    one._start(now - 0.5)
    pids: list[Any] = [4242]
    monkeypatch.setattr(os, "fork", pids.pop)
    one._start(now)
    assert set(one._children) == {4242}


def test_undertakers_have_a_moment_when_it_is_stopped(one: Supervisor, sent: list[tuple[int, int]]) -> None:
    """With the database gone they would go on for a whole lease."""
    one._children[4242] = supervisor.Child(4242, -1, "", None)
    one._on_signal(signal.SIGTERM, None)
    one._on_signal(signal.SIGTERM, None)
    assert one._turn()
    assert sent == []
    one._ending.end_at -= LAST_RITES
    assert one._turn()
    assert sent == [(4242, signal.SIGKILL)]


def test_it_ends_within_five_seconds_of_grace(
    one: Supervisor, sent: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killing what hangs, and waiting for its undertakers, included; whatever comes, its own alarm ends it then."""
    alarms: list[float] = []
    monkeypatch.setattr(one._ending, "arm", alarms.append)
    began = time.monotonic()
    one._on_signal(signal.SIGTERM, None)
    grace = one._settings.GRACE
    [alarm] = alarms
    assert grace + 4.5 < alarm < grace + 5
    ends = one._ending.end_at - began + 2 * supervisor.LOOK
    print(
        f"killed {one._ending.kill_at - began - grace:.2f} s after GRACE; it ends {ends - grace:.2f} s after it at the latest"
    )
    assert grace + LAST_MOMENTS < one._ending.kill_at - began < one._ending.end_at - began
    assert ends <= grace + 5
    one._on_signal(signal.SIGTERM, None)
    assert one._ending.end_at - time.monotonic() <= LAST_RITES, "the second signal means at once"
    assert one._ending.end_at <= began + grace + 5


def test_a_second_signal_late_puts_nothing_off(one: Supervisor, sent: list[tuple[int, int]]) -> None:
    one._on_signal(signal.SIGTERM, None)
    one._ending.kill_at = time.monotonic() - 0.5
    one._ending.end_at = one._ending.kill_at + LAST_RITES
    before = one._ending.end_at
    one._on_signal(signal.SIGTERM, None)
    assert one._ending.end_at == before


def test_as_many_lanes_for_suspects_as_there_are_suspects_and_no_more_than_lanes(
    one: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bool] = []
    monkeypatch.setattr(one, "_fork_worker", lambda place, *, alone: started.append(alone))
    one._finished = [True]
    one._suspects = min(1, one._lanes)
    one._start(time.monotonic())
    assert started == [True]
    one._children[4242] = supervisor.Child(4242, 0, "a", None, alone=True)
    one._suspects = 5
    one._start(time.monotonic())
    assert started == [True, True], "two lanes"


def test_a_drain_looks_once_more_after_jobs_were_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when the worker that has looked is still on its way out: it ends later, and has not seen them."""
    one = Supervisor(Settings(), Options(drain=True), lambda line: None)
    ended: list[int] = []
    monkeypatch.setattr(os, "waitpid", lambda pid, flags: (ended.pop(0), 0) if ended else (0, 0))
    started: list[int] = []
    monkeypatch.setattr(one, "_fork_worker", lambda place, *, alone: started.append(place))

    one._children[4001] = supervisor.Child(4001, 0, "a", Board(1))
    one._children[4002] = supervisor.Child(4002, 0, "alone", Board(1), alone=True)
    ended += [4002]
    one._turn()
    assert started == [], "the first one is there"
    ended += [4001]
    assert one._turn(), "there is something left to do"
    assert started == [0]
    one._children[4003] = supervisor.Child(4003, 0, "b", Board(1))
    ended += [4003]
    assert not one._turn()
    assert started == [0]


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_signal_around_the_fork_reaches_the_new_process(
    one: Supervisor, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler knows only registered processes: one that is forked just then would run on until the deadline."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as new:

        def fork() -> int:
            if when == "during":  # to this thread: a supervisor has no other, the process of the tests may
                signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
            return new.pid

        monkeypatch.setattr(os, "fork", fork)
        if when == "before":
            os.kill(os.getpid(), signal.SIGTERM)
        forked = one._fork(lambda: 0, place=0, worker="token", board=None)
        assert forked == (when == "during"), "one that was told to stop starts nothing"
        try:
            assert when == "before" or new.wait(10) == -signal.SIGTERM
        finally:
            new.kill()
