"""Recording a failure cannot fail, whatever the exception is made of (F119, F125)."""

from __future__ import annotations

import datetime as dt
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from pgjobs import Fixed, Snooze
from tests.rows import history
from tests.testapp.jobs import scripted
from tests.testapp.script import ODD_ERRORS
from tests.worker_harness import Handlers, Workers

LONGEST = 70_000
"""More than any text of a failure may have."""


@pytest.mark.parametrize("name", sorted(ODD_ERRORS))
def test_odd_exceptions_are_recorded(workers: Workers, name: str) -> None:
    job = scripted.using(max_attempts=1).enqueue(steps=[["raise_odd", name]])
    after = scripted.using(priority=-1).enqueue(steps=[["return", 1]])
    workers.drain(THREADS=1)

    row = job.get()
    assert row.status == "dead"
    [attempt] = history(job.id)
    for text in (row.last_error, row.error_class, attempt["error"], attempt["error_class"], attempt["traceback"]):
        assert text
        assert len(text) < LONGEST
    assert after.get().status == "done"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nul", "ValueError: a�b"),
        ("surrogate", "ValueError: �"),
        ("str_raises", "StrRaises (its text could not be read: RuntimeError)"),
        ("str_exits", "StrExits (its text could not be read: SystemExit)"),
        ("needs_three", "NeedsThree: needs three"),
        ("timeout", "TimeoutError: the handler's own"),
        ("group", "ExceptionGroup: many (10000 sub-exceptions)"),
    ],
)
def test_what_is_told_of_odd_exceptions(workers: Workers, name: str, told: str) -> None:
    job = scripted.using(max_attempts=1).enqueue(steps=[["raise_odd", name]])
    workers.drain()
    assert job.get().last_error == told


def test_both_ends_of_a_long_message_are_kept(workers: Workers, handlers: Handlers) -> None:
    @handlers(max_attempts=1)
    def shout() -> None:
        raise ValueError("first " + "x" * 100_000 + " last")

    job = shout.enqueue()
    workers.drain()
    error = job.get().last_error or ""
    assert error.startswith("ValueError: first xxx")
    assert error.endswith("xxx last")
    assert "characters left out" in error
    assert len(error) < 6_000


def test_a_metaclass_may_do_anything(workers: Workers, handlers: Handlers) -> None:
    class Mean(type):
        def __getattribute__(cls, name: str) -> Any:
            raise SystemExit(name)

    class Meanest(Exception, metaclass=Mean):
        def __getattribute__(self, name: str) -> Any:
            raise SystemExit(name)

    @handlers(max_attempts=1)
    def throw() -> None:
        raise Meanest

    job = throw.enqueue()
    workers.drain()
    assert job.get().status == "dead"
    assert job.get().error_class


def test_source_in_another_encoding(workers: Workers, handlers: Handlers, tmp_path: Path) -> None:
    """The traceback's source lines cannot be decoded as UTF-8."""
    module = tmp_path / "latin.py"
    module.write_bytes("def go():\n    raise ValueError('caf\xe9')\n".encode("latin-1"))
    scope: dict[str, Any] = {}
    exec(compile("def go():\n    raise ValueError('caf\xe9')\n", str(module), "exec"), scope)  # noqa: S102

    @handlers(max_attempts=1)
    def call() -> None:
        scope["go"]()

    job = call.enqueue()
    workers.drain()
    [attempt] = history(job.id)
    assert "latin.py" in attempt["traceback"]
    assert job.get().last_error == "ValueError: café"


def test_the_cause_is_told_too(workers: Workers, handlers: Handlers) -> None:
    @handlers(max_attempts=1)
    def chain() -> None:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error

    job = chain.enqueue()
    workers.drain()
    [attempt] = history(job.id)
    assert attempt["traceback"].index("KeyError: 'inner'") < attempt["traceback"].index("ValueError: outer")


def test_locals_stay_private(workers: Workers, handlers: Handlers) -> None:
    @handlers(max_attempts=1)
    def leak(password: str) -> None:
        secret = password * 2
        raise ValueError(len(secret))

    job = leak.enqueue(password="s3cr3t")
    workers.drain()
    assert "s3cr3t" not in str(history(job.id))


# The captured log ----------------------------------------------------------------------------------------------------


def test_the_log_of_a_failed_attempt_is_kept(workers: Workers, handlers: Handlers) -> None:
    other = logging.getLogger("shop.mail")

    @handlers(backoff=Fixed(0, jitter=0), max_attempts=2)
    def talk(ctx: Any) -> None:
        ctx.log.warning("attempt %d begins", ctx.attempt)
        other.error("no\x00route to %s", "host")
        other.debug("not shown")
        raise ValueError

    job = talk.enqueue()
    workers.drain()
    first, second = (h["log"].splitlines() for h in history(job.id))
    assert first[0].endswith("WARNING pgjobs.job: attempt 1 begins")
    assert first[1].endswith("ERROR shop.mail: no�route to host")
    assert len(first) == 2
    assert second[0].endswith("attempt 2 begins"), "each attempt has its own"


def test_only_the_latest_lines_are_kept(workers: Workers, handlers: Handlers) -> None:
    @handlers(max_attempts=1)
    def chatter(ctx: Any) -> None:
        for n in range(1000):
            ctx.log.warning("line %d %s", n, "x" * 5_000)
        raise ValueError

    job = chatter.enqueue()
    workers.drain()
    lines = history(job.id)[0]["log"].splitlines()
    assert len(lines) == 200
    assert "line 999" in lines[-1]
    assert max(map(len, lines)) <= 1_000


def test_two_jobs_at_once_do_not_mix_their_logs(workers: Workers, handlers: Handlers) -> None:
    import threading

    both = threading.Barrier(2, timeout=20)

    @handlers(max_attempts=1)
    def talk(ctx: Any, name: str) -> None:
        both.wait()
        ctx.log.warning("I am %s", name)
        both.wait()
        raise ValueError

    jobs = {name: talk.enqueue(name=name) for name in ("one", "two")}
    workers.drain(THREADS=2)
    for name, job in jobs.items():
        [attempt] = history(job.id)
        assert attempt["log"].count("I am") == 1
        assert f"I am {name}" in attempt["log"]


def test_the_configuration_of_logging_is_left_alone(workers: Workers, handlers: Handlers) -> None:
    """Also while a job runs: with a handler on the root logger Python would no longer print the warnings of a project that has
    configured nothing."""
    root, before = logging.getLogger(), logging.getLogRecordFactory()
    found = []

    @handlers
    def look() -> None:
        found.append(list(root.handlers))

    expected = list(root.handlers)
    look.enqueue()
    workers.drain()
    assert found == [expected]
    assert logging.getLogRecordFactory() is before


def test_loggers_that_do_not_propagate_are_captured_too(workers: Workers, handlers: Handlers) -> None:
    quiet = logging.getLogger("shop.quiet")
    quiet.propagate = False

    @handlers(max_attempts=1)
    def talk() -> None:
        quiet.warning("psst")
        raise ValueError

    job = talk.enqueue()
    workers.drain()
    quiet.propagate = True
    assert "psst" in history(job.id)[0]["log"]


def test_the_recursion_limit_is_not_changed(workers: Workers) -> None:
    limit = sys.getrecursionlimit()
    scripted.using(max_attempts=1).enqueue(steps=[["raise_odd", "deep"]])
    workers.drain()
    assert sys.getrecursionlimit() == limit


@pytest.mark.parametrize("until", [dt.datetime.max, dt.datetime.min], ids=["max", "min"])  # noqa: DTZ901
def test_a_snooze_to_no_storable_time_fails_its_handler(
    workers: Workers, handlers: Handlers, until: dt.datetime
) -> None:
    """The table refuses such a time: recording the snooze could never work."""

    @handlers(max_attempts=1)
    def sleep_for_ever() -> None:
        raise Snooze(until.replace(tzinfo=dt.UTC))

    job = sleep_for_ever.enqueue()
    assert workers.drain().recorded == {"dead": 1}
    assert "between the years 2 and 9998" in (job.get().last_error or "")


@pytest.mark.parametrize("last", [False, True], ids=["attempts left", "last attempt"])
@pytest.mark.parametrize(
    "until", [dt.datetime.max.replace(tzinfo=dt.UTC), "tomorrow", object()], ids=lambda u: type(u).__name__
)
def test_an_ending_that_the_database_refuses_is_a_failure(
    workers: Workers, handlers: Handlers, until: Any, last: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """And takes neither the process nor its neighbours with it."""

    @handlers(max_attempts=1 if last else 2)
    def odd() -> None:
        error = Snooze(1)
        error.until = until
        raise error

    @handlers
    def neighbour() -> None: ...

    job, other = odd.enqueue(), neighbour.enqueue()
    worker = workers.drain()
    assert worker.code == 0
    row = job.get()
    assert (row.status, row.attempts) == ("dead" if last else "pending", 1)
    assert "how it ended (SnoozeUntil) could not be stored" in (row.last_error or "")
    assert [one["outcome"] for one in history(job.id)] == ["error"]
    assert other.get().status == "done"


def test_logging_that_raises_changes_no_ending(workers: Workers, handlers: Handlers) -> None:
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("this filter is broken")

    broken = Broken()

    @handlers(max_attempts=1)
    def fail() -> None:
        logging.getLogger("pgjobs").addFilter(broken)
        raise ValueError("boom")

    job = fail.enqueue()
    try:
        worker = workers.drain()
    finally:
        logging.getLogger("pgjobs").removeFilter(broken)
    assert (worker.code, worker.recorded) == (0, {"dead": 1})
    assert job.get().last_error == "ValueError: boom"
