"""`manage.py demo --exit`, as a process: what it prints, how it ends, and that nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.waiting import wait_until

CHECKOUT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.timeout(90)


class Demo:
    """A running `demo`, whose descendants are known by a mark in their environment."""

    def __init__(self, url: str, var: Path, *options: str) -> None:
        self.mark = uuid.uuid4().hex
        self.output = var / f"{self.mark}.txt"
        self._left_out = ""
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "demo", *options],
                cwd=CHECKOUT,
                env={**os.environ, "DATABASE_URL": url, "VAR_DIR": str(var), "DEMO_MARK": self.mark, **ENV},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def family(self) -> list[int]:
        """Pids of its descendants that live, whatever they are called and whoever their parent is by now."""
        found = []
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if f"DEMO_MARK={self.mark}".encode() in environ.read_bytes():
                    found.append(int(environ.parent.name))
        return [pid for pid in found if pid != self.process.pid]

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Until it has printed something like this; fails at once when it ends without."""

        def found() -> re.Match[str] | None:
            ended = self.process.poll() is not None
            match = re.search(pattern, self.text)
            assert match or not ended, self.text
            return match

        return wait_until(found, f"{pattern!r} in the demo's output", 80)  # type: ignore[return-value]

    def end(self) -> int:
        """Its exit code; nothing of it may be left."""
        code = self.process.wait(80)
        assert not self.family(), self.text
        return code


ENV = {"PYTHONUNBUFFERED": "1", "DJANGO_SETTINGS_MODULE": "example_project.settings", "FORCE_COLOR": ""}


@contextlib.contextmanager
def database() -> Iterator[str]:
    """A database of its own on the tests' server: the demo is a project with its own migrations, not a test."""
    name, server = f"demo_{uuid.uuid4().hex[:8]}", os.environ["DATABASE_URL"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield urlsplit(server)._replace(path=f"/{name}").geturl()
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def url() -> Iterator[str]:
    """A fresh database."""
    with database() as made:
        yield made


@pytest.fixture(scope="module")
def shared_url() -> Iterator[str]:
    """One for two demos in a row, whichever comes first: the second finds what the first has left."""
    with database() as made:
        yield made


def check_rows(text: str) -> None:
    for row in (
        "Welcome mail +send_welcome_mail +done +1 +1 ",
        "CSV import +import_products +done +1 +1 .*19,996 products imported, 4 bad rows",
        "CRM, flaky +sync_customer +done +1 +3 ",
        "CRM, hopeless +sync_customer +dead +1 +4 .*the CRM answered 500: syntax error",
        "Weekly report +write_weekly_report +done +1 +1 ",
        "Daily digest +send_daily_digests +done +1 +1 ",
        " +send_digest_mail +done +2,000 +2,000 ",
    ):
        assert re.search(f"^{row}", text, re.MULTILINE), text


@pytest.mark.slow
def test_all_five_flows_end_as_they_should(shared_url: str, tmp_path: Path) -> None:
    demo = Demo(shared_url, tmp_path, "--exit")
    assert demo.end() == 0, demo.text
    check_rows(demo.text)
    for schedule in ("daily digest +on +At 07:00 every day +UTC +", "weekly report +on +At 06:00 on Monday +UTC +Mon "):
        assert re.search(f"^{schedule}", demo.text, re.MULTILINE), demo.text
    assert "\x1b" not in demo.text
    assert "Admin: user admin" in demo.text
    assert len(list((tmp_path / "reports").iterdir())) == 1


@pytest.mark.slow
def test_with_the_site_it_stays_until_it_is_stopped(shared_url: str, tmp_path: Path) -> None:
    demo = Demo(shared_url, tmp_path)
    demo.wait_for("It all stays until Ctrl-C")
    check_rows(demo.text)
    letter = demo.wait_for(r"The dead letter: (http://127\.0\.0\.1:80\d\d)(/admin/pgjobs/job/\d+/change/)")
    with closing(HTTPConnection(urlsplit(letter[1]).netloc, timeout=20)) as connection:
        connection.request("GET", letter[2])
        assert connection.getresponse().status == 302  # the way to the login, which leads there
    demo.process.send_signal(signal.SIGINT)
    assert demo.end() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "signum"),
    [("Database: ", signal.SIGTERM), ("Worker: ", signal.SIGINT), ("send_welcome_mail", signal.SIGTERM)],
)
def test_interrupted_it_leaves_nothing_running(url: str, tmp_path: Path, moment: str, signum: signal.Signals) -> None:
    demo = Demo(url, tmp_path, "--exit")
    demo.wait_for(moment)
    demo.process.send_signal(signum)
    assert demo.end() == 128 + signum


@pytest.mark.slow
def test_a_worker_that_dies_is_told_with_its_last_lines(url: str, tmp_path: Path) -> None:
    demo = Demo(url, tmp_path, "--exit")
    worker = int(demo.wait_for(r"Worker: .*pid (\d+)")[1])
    log = tmp_path / "demo-worker.log"
    wait_until(lambda: "kinds: " in log.read_text(), "the worker to start", 30)
    os.kill(worker, signal.SIGKILL)
    assert demo.end() == 1
    assert "The worker has ended by itself, with exit code -9" in demo.text
    assert "  | pgjobs worker" in demo.text
