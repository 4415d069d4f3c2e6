"""The server goes away, comes back, or falls silent (F22, F38, F39, F40, F41, F51, F58)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.conftest import Start, insert, status
from tests.waiting import wait_until
from tests.worker_harness import Proxy, Server


def listening(server: Server) -> int | None:
    """The backend of the worker's listener."""
    found: int | None = server.query(
        "SELECT pid FROM pg_stat_activity"
        " WHERE application_name = 'pgjobs listener' AND state = 'idle' AND query LIKE 'UNLISTEN%%'"
    )
    return found


def everything_works(server: Server) -> None:
    """Claims, notifications (the poll interval is long), retries, beats and the reaping of others' jobs."""
    wait_until(lambda: listening(server), "LISTEN")
    job = insert(server, "[]")
    wait_until(lambda: status(server, job) == "done", "a notification to wake the worker", 8)
    lapsed = server.query(
        "INSERT INTO pgjobs_job (kind, payload, status, attempts, lease, reserved_by, reserved_at, reserved_until)"
        " VALUES ('scripted_now', '{\"steps\": []}', 'reserved', 1, 1, 'gone', now() - interval '1 hour', now() - interval '1 s')"
        " RETURNING id"
    )
    wait_until(lambda: status(server, lapsed) == "done", "the reaper")
    beat = server.query("SELECT max(beat_at) FROM pgjobs_worker")
    wait_until(lambda: server.query("SELECT max(beat_at) FROM pgjobs_worker") > beat, "a beat")


QUICK = {"PGJOBS_LISTEN_POLL_INTERVAL": "60"}


def terminate_all(server: Server) -> None:
    server.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'jobs' AND pid <> pg_backend_pid()"
    )


def restart(server: Server) -> None:
    server.restart()


def crash(server: Server) -> None:
    server.stop("immediate")
    server.start()


def away_for_a_while(server: Server) -> None:
    server.stop()
    time.sleep(3)  # the outage is what is tested
    server.start()


@pytest.mark.parametrize(
    "trouble", [terminate_all, restart, crash, pytest.param(away_for_a_while, marks=pytest.mark.slow)]
)
def test_all_of_a_worker_survives(server: Server, run_elsewhere: Start, trouble: Callable[[Server], None]) -> None:
    """F40: no role dies silently. What it says of the trouble are a few lines, not one for each try."""
    worker = run_elsewhere(**QUICK)
    everything_works(server)
    running = insert(server, '[["sleep", 1.5], ["return", 1]]')
    wait_until(lambda: server.query("SELECT count(*) FROM testapp_audit WHERE job_id = %s", running))
    trouble(server)
    everything_works(server)
    wait_until(lambda: status(server, running) == "done")
    assert worker.output.count("does not answer as it should") <= 8, worker.output
    assert worker.stop() == 0


def test_the_end_of_a_run_survives_the_loss_of_all_connections(server: Server, run_elsewhere: Start) -> None:
    """F22: between the handler's return and the finish; recorded within seconds, run once."""
    job = insert(
        server,
        '[["sql", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE \'pgjobs %\'"]]',
    )
    run_elsewhere()
    wait_until(lambda: status(server, job) == "done", seconds=10)
    assert server.query("SELECT attempts FROM pgjobs_job WHERE id = %s", job) == 1


def test_it_waits_for_a_server_that_is_not_there_yet(server: Server, run_elsewhere: Start) -> None:
    """F40."""
    job = insert(server, "[]")
    server.stop()
    worker = run_elsewhere()
    worker.wait_for("trying again")
    server.start()
    worker.wait_ready()
    wait_until(lambda: status(server, job) == "done")
    assert worker.stop() == 0


def test_it_can_be_stopped_while_it_waits_for_the_server(server: Server, run_elsewhere: Start) -> None:
    server.stop()
    worker = run_elsewhere()
    worker.wait_for("trying again")
    began = time.monotonic()
    assert worker.stop() == 0
    assert time.monotonic() - began < 5


def test_it_ends_in_time_when_the_server_is_gone(server: Server, run_elsewhere: Start) -> None:
    """F58: within GRACE and five seconds, and its exit code says that not all is well."""
    job = insert(server, '[["sleep", 0.5]]')
    worker = run_elsewhere("--grace", 1)
    wait_until(lambda: server.query("SELECT count(*) FROM testapp_audit"))
    server.stop("immediate")
    began = time.monotonic()
    code = worker.stop()
    assert time.monotonic() - began < 1 + 5 + 5  # the last five for a busy machine
    assert code in (0, 75), worker.output
    server.start()
    assert status(server, job) in ("reserved", "pending"), "the lease lapses by itself"


@pytest.mark.slow
def test_an_outage_costs_neither_files_nor_log_lines(server: Server, run_elsewhere: Start) -> None:
    """F39."""
    worker = run_elsewhere(**QUICK)
    everything_works(server)
    pid = server.query("SELECT pid FROM pgjobs_worker")
    before = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    server.stop()
    tries = worker.wait_for("does not answer as it should")
    assert tries
    time.sleep(4)  # the outage is what is tested
    assert len(list(Path(f"/proc/{pid}/fd").iterdir())) <= before
    server.start()
    everything_works(server)
    wait_until(lambda: len(list(Path(f"/proc/{pid}/fd").iterdir())) <= before + 1)
    worker.stop()


# A wire that is cut, or swallows ---------------------------------------------------------------------------------------


def test_a_cut_wire(server: Server, proxy: Proxy, run_elsewhere: Start) -> None:
    worker = run_elsewhere(url=proxy.url(), **QUICK)
    everything_works(server)
    proxy.cut()
    everything_works(server)
    proxy.refuse()
    worker.wait_for("does not answer as it should")
    proxy.heal()
    everything_works(server)
    assert worker.stop() == 0


@pytest.mark.slow
def test_a_silent_server_ends_the_process_before_its_leases_lapse(
    server: Server, proxy: Proxy, run_elsewhere: Start
) -> None:
    """F41: nothing is reset and nothing answers. The watchdog needs no database; the replacement works when it can."""
    worker = run_elsewhere("--poll-interval", 0.5, url=proxy.url())
    everything_works(server)
    pid = server.query("SELECT pid FROM pgjobs_worker")
    beat = server.query("SELECT max(beat_at) FROM pgjobs_worker")
    proxy.swallow()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the process that hangs", 20)
    proxy.heal()
    everything_works(server)
    assert server.query("SELECT max(beat_at) FROM pgjobs_worker") > beat
    assert worker.stop() == 0


def test_a_silent_server_does_not_keep_a_stopping_worker(server: Server, proxy: Proxy, run_elsewhere: Start) -> None:
    """F58, while the claim loop waits for an answer that never comes."""
    worker = run_elsewhere(
        "--grace", 1, "--poll-interval", 0.1, url=proxy.url(), PGJOBS_LEASE="60", PGJOBS_HEARTBEAT="20"
    )
    worker.wait_ready()
    proxy.swallow()
    began = time.monotonic()
    worker.send(signal.SIGTERM)
    code = worker.wait(20)
    assert time.monotonic() - began < 1 + 5 + 5  # the last five for a busy machine
    assert code != 0
