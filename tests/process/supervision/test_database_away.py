"""The database goes away, in every way that one can: all loops recover by themselves, and nothing is marked failed for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.waiting import wait_until
from tests.worker_harness import Process, Proxy, Server, proxy_to

from .conftest import Fleet, children, measured, stop_well

AWAY = 3.0
"""Seconds for which it is away; a minute behaves the same, only longer."""

BACK = 2.0 + 1.0
"""Seconds in which work goes on after its return: what is promised, and a busy machine's slowness."""


class Jobs:
    """Jobs in a server of the test's own, by SQL: Django's connections here lead elsewhere."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def script(self, *steps: list[Any], **options: Any) -> int:
        given = {"p_max_attempts": 10} | options
        named = "".join(f", {name} => %({name})s" for name in given)
        found: int = self._query(
            f"SELECT id FROM pgjobs_enqueue(p_kind => 'scripted_now', p_payload => %(payload)s::jsonb{named})",  # noqa: S608
            given | {"payload": psycopg.types.json.Json({"steps": list(steps)})},
        )
        return found

    def wait(self, id_: int, status: str = "done", seconds: float = 30) -> None:
        wait_until(lambda: self.get(id_, "status") == status, f"job {id_} to be {status}", seconds)

    def get(self, id_: int, column: str) -> Any:
        return self._query(f"SELECT {column} FROM pgjobs_job WHERE id = %s", [id_])  # noqa: S608

    def wait_event(self, id_: int, event: str) -> None:
        sql = "SELECT count(*) FROM testapp_audit WHERE job_id = %s AND event = %s"
        wait_until(lambda: self._query(sql, [id_, event]), f"{event} of job {id_}")

    def failures(self) -> list[Any]:
        with self.server.connect() as connection:
            return connection.execute("SELECT job_id, outcome, error FROM pgjobs_attempt").fetchall()

    def _query(self, sql: str, parameters: Any) -> Any:
        with self.server.connect() as connection:
            row = connection.execute(sql, parameters).fetchone()
        return row[0] if row else None


@pytest.fixture
def jobs(server: Server) -> Jobs:
    return Jobs(server)


@pytest.fixture
def worker(run_jobs: Fleet, server: Server) -> Process:
    """One process of two threads that serves that server; its lease is longer than the absences here."""
    return run_jobs("--threads", 2, "--grace", 1, url=server.url(), env={"PGJOBS_LEASE": "15", "PGJOBS_HEARTBEAT": "1"})


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    with proxy_to(server.socket) as one:
        yield one


class Usage:
    """CPU time and open descriptors of a worker process."""

    def __init__(self, worker: Process) -> None:
        [self.pid] = children(worker.popen.pid)
        self.cpu, self.descriptors = self._look()

    def _look(self) -> tuple[float, int]:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK"), len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def is_modest(self, seconds: float) -> None:
        """Since the start: no busy loop, no growth of descriptors."""
        cpu, descriptors = self._look()
        print(f"{cpu - self.cpu:.2f} s of CPU in {seconds:.1f} s; descriptors {self.descriptors} → {descriptors}")
        assert cpu - self.cpu < 0.15 * seconds + 0.5
        assert descriptors <= self.descriptors + 5  # connections of handlers; a leak would be one more for each try


def works_again(jobs: Jobs, within: float = BACK) -> None:
    """A job that is enqueued now runs soon; so does one that is announced, and one of a moment later."""
    with measured("back, until a job is done", within):
        jobs.wait(jobs.script(["return", 1]))
    jobs.wait(jobs.script(["return", 2]), seconds=2)


def test_every_session_is_terminated(jobs: Jobs, worker: Process) -> None:
    """F38, F40, F51: every role's, the listener's and the handlers'."""
    running = jobs.script(["sleep", 2])
    jobs.wait_event(running, "start")
    usage = Usage(worker)
    with jobs.server.connect() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'jobs' AND pid <> pg_backend_pid()"
        )
    works_again(jobs)
    jobs.wait(running)
    assert jobs.get(running, "attempts") == 1
    assert jobs.failures() == []
    listening = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgjobs listener' AND datname = 'jobs'"
    wait_until(lambda: jobs.server.query(listening) == 1, "one listener, and no more")
    usage.is_modest(3)
    stop_well(worker)


@pytest.mark.parametrize(
    ("mode", "away"), [("fast", 0.0), pytest.param("immediate", 0.0, marks=pytest.mark.slow), ("fast", AWAY)]
)
def test_the_server_is_restarted_or_stays_away(jobs: Jobs, worker: Process, mode: str, away: float) -> None:
    """F22, F40: a job that runs meanwhile is done when the database is back: its outcome waited."""
    running = jobs.script(["sleep", away + 1])
    jobs.wait_event(running, "start")
    usage = Usage(worker)
    began = time.monotonic()
    jobs.server.stop(mode)
    time.sleep(away)
    tries = worker.output.count("\n")
    jobs.server.start()
    works_again(jobs)
    jobs.wait(running)
    assert jobs.get(running, "attempts") == 1
    assert {outcome for _, outcome, _ in jobs.failures()} <= {"interrupted"}, (
        "a server that still recovers costs no attempt"
    )
    assert worker.output.count("\n") - tries < 20, "one line for each change of state of each loop"
    usage.is_modest(time.monotonic() - began)
    stop_well(worker)


@pytest.mark.slow
@pytest.mark.minutes
@pytest.mark.timeout(180)
def test_a_minute_away(jobs: Jobs, run_jobs: Fleet, server: Server) -> None:
    """F39: at default settings leases lapse, and still nothing is failed. The proxy counts how often each of the four
    loops (claimer, completer, keeper, listener) asks for a connection: they have to be back within two seconds of its return,
    so that it is once in about 1.3 s, and no more.
    """
    with proxy_to(server.socket) as proxy:
        worker = run_jobs("--threads", 2, url=proxy.url(), env={"PGJOBS_LEASE": "15", "PGJOBS_HEARTBEAT": "5"})
        id_ = jobs.script(["sleep", 2])
        jobs.wait_event(id_, "start")
        usage = Usage(worker)
        proxy.refuse()
        before = proxy.tries
        time.sleep(60)
        tries = proxy.tries - before
        print(f"{tries} connections were asked for in a minute")
        assert 4 * 20 < tries < 4 * 70, "each loop tries, and none storms"
        usage.is_modest(60)
        proxy.heal()
        works_again(jobs)
        jobs.wait(id_)
        stop_well(worker)


def test_it_is_read_only_for_a_while(jobs: Jobs, worker: Process) -> None:
    """As after a failover to a standby."""
    with jobs.server.connect() as connection:
        id_ = jobs.script(["sleep", 4])
        jobs.wait_event(id_, "start")
        usage = Usage(worker)
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        worker.wait_for("does not answer as it should")
        time.sleep(1)  # of being refused
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
        connection.execute("SELECT pg_reload_conf()")
    works_again(jobs)
    jobs.wait(id_)
    assert jobs.failures() == []
    usage.is_modest(3)
    stop_well(worker)


def test_sigterm_while_it_is_read_only(jobs: Jobs, worker: Process) -> None:
    """What runs cannot be given back."""
    with jobs.server.connect() as connection:
        id_ = jobs.script(["sleep", 30])
        jobs.wait_event(id_, "start")
        connection.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        connection.execute("SELECT pg_reload_conf()")
        worker.wait_for("does not answer as it should")
        with measured("SIGTERM with a database that is read-only and a grace of 1 s", 1 + 5):
            code = worker.stop(signal.SIGTERM)
    print(f"exit code {code}")
    assert code in (0, 75)


def test_it_is_not_there_at_the_start(jobs: Jobs, run_jobs: Fleet, server: Server) -> None:
    """F40: it waits, and begins."""
    id_ = jobs.script(["return", 1])
    server.stop()
    worker = run_jobs("--threads", 1, url=server.url(), ready=False)
    worker.wait_for("does not answer as it should")
    server.start()
    with measured("there at last, until a job is done", BACK):
        jobs.wait(id_)
    stop_well(worker)


def test_sigterm_while_it_is_away(jobs: Jobs, worker: Process) -> None:
    """F58: within GRACE (1 s) and five seconds, with a code that says that something may be left; the leases lapse later."""
    id_ = jobs.script(["sleep", 30])
    jobs.wait_event(id_, "start")
    jobs.server.stop()
    with measured("SIGTERM with the database away and a grace of 1 s", 1 + 5):
        assert worker.stop(signal.SIGTERM) == 75
    jobs.server.start()
    assert jobs.get(id_, "status") == "reserved"


@pytest.mark.parametrize("what", ["cut", pytest.param("swallow", marks=pytest.mark.slow)])
def test_a_network_that_swallows(jobs: Jobs, run_jobs: Fleet, proxy: Proxy, what: str) -> None:
    """F41. Cut: connections are reset and refused. Swallow: nothing comes back, and nobody says why; the watchdog or the socket's
    timeouts end the waiting, and the lease decides.
    """
    worker = run_jobs("--threads", 1, "--grace", 1, url=proxy.url(), env={"PGJOBS_LEASE": "6", "PGJOBS_HEARTBEAT": "1"})
    jobs.wait(jobs.script(["return", 1]))
    if what == "cut":
        proxy.refuse()
        time.sleep(AWAY)
    else:
        proxy.swallow()
        wait_until(lambda: "does not answer" in worker.output or "died" in worker.output, "anybody to notice", 30)
    proxy.heal()
    works_again(jobs, BACK if what == "cut" else BACK + 5)
    assert {outcome for _, outcome, _ in jobs.failures()} <= {"interrupted"}
    stop_well(worker)


@pytest.mark.slow
def test_sigterm_while_the_network_swallows(jobs: Jobs, run_jobs: Fleet, proxy: Proxy) -> None:
    worker = run_jobs("--threads", 1, "--grace", 1, url=proxy.url())
    jobs.wait(jobs.script(["return", 1]))
    proxy.swallow()
    with measured("SIGTERM with a dead network and a grace of 1 s", 1 + 5):
        assert worker.stop(signal.SIGTERM) in (0, 75)


def test_two_signals_while_it_is_away(jobs: Jobs, run_jobs: Fleet) -> None:
    """F58: at once means at once; what cannot be given back is left to its lease."""
    worker = run_jobs("--threads", 1, "--grace", 60, url=jobs.server.url(), env={"PGJOBS_LEASE": "15"})
    id_ = jobs.script(["sleep", 30])
    jobs.wait_event(id_, "start")
    jobs.server.stop()
    worker.send(signal.SIGTERM)
    worker.wait_for("pgjobs stops")
    with measured("the second SIGTERM with the database away", 4):
        assert worker.stop(signal.SIGTERM) == 128 + signal.SIGTERM
