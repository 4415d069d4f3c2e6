"""What a worker costs while there is nothing to do (F46, F52, F60). The keeper's beats are the clock."""

from __future__ import annotations

import pytest

from pgjobs import enqueue_many
from tests.integration.worker.conftest import Statements, sql
from tests.testapp import audit, script
from tests.testapp.jobs import scripted, write_note
from tests.testapp.models import Note
from tests.waiting import wait_until
from tests.worker_harness import Workers

MINUTE = {"HEARTBEAT": 0.25, "LISTEN_POLL_INTERVAL": 0.5, "POLL_INTERVAL": 0.05}
"""A minute of the defaults (a beat each 5 s, polls each 10 or 1 s), twenty times as fast."""


@pytest.mark.parametrize(("listen", "most"), [(True, 20), (False, 75)], ids=["listening", "polling"])
def test_an_idle_minute(workers: Workers, statements: Statements, listen: bool, most: int) -> None:
    """F60: 12 beats and 6 polls while it listens. (The lease is short as well: looks of the watchdog are no polls.)"""
    # The claims for handlers of the event loop are left out: a project has them or not.
    worker = workers.start({"listen": listen}, LEASE=1, **MINUTE)
    wait_until(lambda: worker.worker._listener.listening or not listen)
    beats = len(statements.of("pgjobs_beat("))
    wait_until(lambda: len(statements.of("pgjobs_beat(")) > beats)
    first = len(statements)
    beats = len(statements.of("pgjobs_beat("))
    wait_until(lambda: len(statements.of("pgjobs_beat(")) >= beats + 12)
    said = [text for _, text in statements[first:] if '"scripted_async"' not in text or '"scripted"' in text]
    assert len(said) <= most, "\n".join(said)


def test_twenty_idle_workers_and_one_job(workers: Workers, statements: Statements) -> None:
    """F46: each looks about once, and they do not go on looking."""
    some = [workers.start({"listen": True}, THREADS=1, HEARTBEAT=0.9) for _ in range(10)]
    wait_until(lambda: all(one.worker._listener.listening for one in some))
    claims = "pgjobs_claim_many(", '"scripted"'

    def quiet() -> bool:
        """Nobody has claimed for the time of two beats."""
        before, beats = len(statements.of(*claims)), len(statements.of("pgjobs_beat("))
        wait_until(lambda: len(statements.of("pgjobs_beat(")) >= beats + 2 * len(some))
        return len(statements.of(*claims)) == before

    wait_until(quiet)
    before = len(statements.of(*claims))
    job = scripted.enqueue(steps=[])
    wait_until(lambda: job.get().status == "done")
    wait_until(quiet)
    assert len(statements.of(*claims)) - before <= 4 * len(some)


def test_one_announcement_of_many_jobs_fills_every_slot(workers: Workers) -> None:
    """F46."""
    some = [workers.start({"listen": True}, THREADS=3) for _ in range(2)]
    wait_until(lambda: all(one.worker._listener.listening for one in some))
    with script.closed_gate() as open_gate:
        enqueue_many(scripted.prepare(steps=[["gate", 1]]) for _ in range(20))
        wait_until(lambda: audit.events().count("at gate") == 6, seconds=5)
        open_gate()
        wait_until(lambda: audit.events().count("end") == 20)


def test_connections_stay_within_the_formula(workers: Workers) -> None:
    """F52: one for each thread, and claimer, completer, keeper, listener."""
    for _ in range(200):
        write_note.enqueue(text="x")
    worker = workers.start({"listen": True}, THREADS=3)
    most = 0

    def done() -> bool:
        nonlocal most
        [(count,)] = sql(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend'"
            " AND pid <> pg_backend_pid() AND application_name NOT IN ('tests', %s, 'pgjobs self-test')",
            audit.NAME,
        )
        most = max(most, count)
        return worker.recorded.get("done") == 200

    wait_until(done)
    assert Note.objects.count() == 200
    assert 4 < most <= 3 + 4


def test_without_listen_what_comes_due_after_a_claim_that_found_something_is_not_left_to_the_poll(
    workers: Workers,
) -> None:
    """F48"""
    with script.closed_gate() as open_gate:
        first = scripted.enqueue(steps=[["gate", 1]])  # its end would ring
        second = scripted.using(run_after=1.0).enqueue(steps=[])
        workers.start({"listen": False}, POLL_INTERVAL=60)
        wait_until(lambda: second.get().status == "done", seconds=10)
        assert first.get().status == "reserved"
        open_gate()
