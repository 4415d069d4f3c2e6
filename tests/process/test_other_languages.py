"""The worker of docs/how-to/other-languages.md, as it stands there: thirty lines and nothing of pgjobs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from pgjobs import enqueue
from pgjobs.models import Job

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/other-languages.md"


def run_worker(path: Path) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 30
    path.write_text(code)
    params = connection.get_connection_params()
    dsn = make_conninfo(**{k: str(params[k]) for k in ("dbname", "user", "password", "host", "port") if params.get(k)})
    done = subprocess.run(
        [sys.executable, "-I", str(path), dsn, "--once"], capture_output=True, text=True, timeout=60, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.django_db(transaction=True)
def test_thirty_lines_claim_finish_and_fail(tmp_path: Path) -> None:
    good = enqueue("resize_image", {"path": "a.png", "width": 10})
    bad = enqueue("resize_image", {"path": "a.png", "height": 10}, max_attempts=1)
    strange = enqueue("unknown_here", {})
    run_worker(tmp_path / "worker.py")
    job = good.get()
    assert (job.status, job.attempts, job.finished_at is not None) == ("done", 1, True)
    job = bad.get()
    assert (job.status, job.attempts) == ("dead", 1)
    assert "unexpected keyword argument 'height'" in job.last_error
    assert Job.objects.get(pk=strange.id).attempts == 0


@pytest.mark.django_db(transaction=True)
def test_and_return_what_a_dead_one_held(tmp_path: Path) -> None:
    lost = enqueue("resize_image", {"path": "a.png", "width": 10})
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM pgjobs_claim(1, 'dead', p_lease => interval '1 microsecond')")
        assert cursor.fetchall() == [(lost.id,)]
    run_worker(tmp_path / "worker.py")
    job = lost.get()
    assert (job.status, job.attempts, job.reserved_by) == ("pending", 1, None)
    assert "Requeued after timeout" in job.last_error
