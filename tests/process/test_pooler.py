"""Behind PgBouncer in transaction mode: nothing relies on a session (F43, F44)."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator

import pytest

from example_project import devpg
from tests.process.conftest import Start, insert, status
from tests.waiting import wait_until
from tests.worker_harness import Server


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        port: int = one.getsockname()[1]
    return port


@pytest.fixture
def pooler(server: Server) -> Iterator[str]:
    """The URL of the server's database through PgBouncer: a pool of three connections, taken for a transaction each."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer)")
    port, place = free_port(), server.place
    (place / "pgbouncer.ini").write_text(
        f"[databases]\njobs = host={server.socket.parent} port=5432 user=postgres dbname=jobs\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 3\nmax_client_conn = 200\n"
    )
    user = devpg._locate(place).user  # as root it refuses to run, as PostgreSQL does
    process = subprocess.Popen(
        [program, "-q", place / "pgbouncer.ini"], cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user
    )
    try:
        wait_until(lambda: _answers(port), "PgBouncer")
        yield f"postgres://postgres@127.0.0.1:{port}/jobs"
    finally:
        process.terminate()
        process.wait(10)


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def test_everything_but_listening_works(server: Server, pooler: str, run_elsewhere: Start) -> None:
    worker = run_elsewhere(url=pooler)
    worker.wait_for("listen unavailable, polling")
    jobs = [insert(server, '[["note", "x"], ["return", 1]]') for _ in range(40)]
    flaky = insert(server, '[["raise"]]', max_attempts=2)
    atomic = insert(server, '[["note", "atomic"]]', kind="scripted_atomic")
    later = insert(server, "[]")
    wait_until(lambda: {status(server, job) for job in (*jobs, atomic, later)} == {"done"})
    wait_until(lambda: status(server, flaky) == "dead")
    assert server.query("SELECT count(*) FROM testapp_note") == 41
    assert "prepared statement" not in worker.output
    assert "does not answer" not in worker.output
    assert worker.stop() == 0
    assert server.query("SELECT count(*) FROM pgjobs_worker") == 0


def test_two_workers_share_a_small_pool(server: Server, pooler: str, run_elsewhere: Start) -> None:
    jobs = [insert(server, '[["sleep", 0.05]]') for _ in range(60)]
    both = [run_elsewhere("--no-listen", url=pooler) for _ in range(2)]
    wait_until(lambda: {status(server, job) for job in jobs} == {"done"})
    assert server.query("SELECT max(attempts) FROM pgjobs_job") == 1
    assert [one.stop() for one in both] == [0, 0]
