"""pg_cron, for real: a server that has it loaded enqueues by itself, and a worker runs what appears.

As docs/how-to/external-schedulers.md says: its snippets are run as they stand there, but for the time and the job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.process.conftest import Processes
from tests.waiting import wait_until
from tests.worker_harness import Server, make_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/external-schedulers.md"
SECTION = PAGE.read_text().split("\n## pg_cron", 1)[1].split("\n## ", 1)[0]


def snippet(containing: str) -> str:
    """The block of SQL of that section which holds a text."""
    [found] = [block for block in re.findall(r"```sql\n(.*?)```", SECTION, re.S) if containing in block]
    return str(found)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server with pg_cron in the jobs' database. Its settings are those of the page."""
    with pytest.MonkeyPatch.context() as patch:
        directories = sorted(Path("/usr/lib/postgresql").glob("*/lib/pg_cron.so"), reverse=True)
        if not directories:
            pytest.skip("pg_cron is not installed (apt-get install postgresql-15-cron, or that of another version)")
        patch.setenv("DEVPG_BIN", str(directories[0].parent.parent / "bin"))
        one = make_server()
    try:
        [settings] = re.findall(r"```ini\n(.*?)```", SECTION, re.S)
        one.configure(settings.replace("shop", "jobs"))
        one.query(snippet("CREATE EXTENSION"))
        yield one
    finally:
        one.remove()


def schedule(server: Server, containing: str, note: str) -> None:
    """Run a snippet of the page for a job of the tests: every second if this version can, else every minute."""
    [sql] = [text for text in snippet(containing).strip().split("\n\n") if containing in text]
    sql = re.sub(r"send_report', '\{.*?\}'", f"""write_note', '{{"text": "{note}"}}'""", sql).replace(
        "'shop'", "'jobs'"
    )
    assert note in sql
    for when in ("1 seconds", "* * * * *"):
        try:
            server.query(sql.replace("0 2 * * *", when))
        except psycopg.errors.InvalidParameterValue:  # before 1.5 there are no seconds
            continue
        return
    raise AssertionError("it takes neither seconds nor minutes")


def test_pg_cron_enqueues_and_a_worker_runs_it(server: Server) -> None:
    """In the database of the extension, and from there in another one by name (here it is the same)."""
    schedule(server, "cron.schedule(", "from pg_cron")
    schedule(server, "cron.schedule_in_database(", "by name")
    workers = Processes(server.url())
    try:
        worker = workers.start()
        for note in ("from pg_cron", "by name"):
            found = "SELECT count(*) FROM pgjobs_job WHERE kind = 'write_note' AND payload ->> 'text' = %s AND status = 'done'"
            wait_until(lambda n=note, sql=found: server.query(sql, n), f"a job {note}", 130)
            assert server.query("SELECT count(*) FROM testapp_note WHERE text = %s", note)
        assert server.query("SELECT count(*) FROM cron.job_run_details WHERE status = 'failed'") == 0
        assert worker.stop() == 0
    finally:
        workers.close()
    version = server.query("SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'")
    print(f"pg_cron {version}, PostgreSQL {server.query('SHOW server_version')}")
    assert server.query(snippet("cron.unschedule").strip().splitlines()[0]) is True
