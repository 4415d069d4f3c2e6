"""The private development server, with real processes: who starts it, who stops it, and what crashes leave behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import psycopg
import pytest

from example_project import devpg

CHECKOUT = Path(__file__).resolve().parents[2]
AS_ROOT = os.geteuid() == 0

START = """
import os, pathlib, subprocess, sys
from example_project import devpg
print(devpg.provide(pathlib.Path(sys.argv[1])), flush=True)
"""
USE = START + "sys.stdin.read()"
FORK = START + "if not os.fork(): sys.stdin.read()"
EXEC = f"""{START}
child = subprocess.Popen([sys.executable, "-W", "ignore", "-c", {USE!r}, sys.argv[1]], stdout=subprocess.PIPE)
child.stdout.readline()  # it has joined
"""


def wait_until(true: Callable[[], object], what: str, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} s: {what}"
        time.sleep(0.01)  # between two looks


class Project:
    """A project's directory, and the processes that use its server."""

    def __init__(self, base: Path, **env: str) -> None:
        self.base = base
        self.env = {name: value for name, value in os.environ.items() if name not in ("DATABASE_URL", "DEVPG_URL")}
        self.env |= {"PYTHONPATH": str(CHECKOUT), "TMPDIR": str(base.parent), **env}
        self.processes: list[subprocess.Popen[str]] = []
        self.url = ""

    def spawn(self, code: str = USE) -> subprocess.Popen[str]:
        """Start a process that uses the server until its stdin ends."""
        command = [sys.executable, "-c", code, str(self.base)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, env=self.env, text=True, **pipes)
        self.processes.append(process)
        return process

    def use(self, code: str = USE) -> tuple[subprocess.Popen[str], str]:
        """Start such a process and wait until it has its server."""
        process = self.spawn(code)
        self.url = url_of(process)
        return process, self.url

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout, process.stderr):
                pipe.close()
        if not self.url or not stopped(self.url):
            leave(self.use()[0])  # stops what the killed ones left


def url_of(process: subprocess.Popen[str]) -> str:
    url = process.stdout.readline().strip()
    assert url, process.stderr.read()
    return url


def leave(process: subprocess.Popen[str]) -> None:
    """Let a process end in its own time; atexit included."""
    _, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")


def home(url: str) -> Path:
    return Path(parse_qs(urlsplit(url).query)["host"][0])


def query(url: str, sql: str) -> object:
    with psycopg.connect(host=str(home(url)), user="postgres", dbname="pgjobs", autocommit=True) as connection:
        cursor = connection.execute(sql)
        return cursor.fetchone()[0] if cursor.description else None


def server(url: str) -> int:
    """The server's pid, asked of itself."""
    return int(query(url, "SELECT pg_read_file('postmaster.pid')").split()[0])


def stopped(url: str) -> bool:
    """Stopped in good order: a server that was killed leaves its pid file."""
    return not (home(url) / "data/postmaster.pid").exists()


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """A directory that anybody can enter, as root's server must: pytest's own is closed."""
    try:
        devpg._binaries()
    except devpg.DevpgError:
        pytest.skip("no PostgreSQL binaries here: the tests run on the server of DATABASE_URL")
    path = Path(tempfile.mkdtemp(prefix="devpg-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def base(directory: Path) -> Path:
    """A project whose cluster exists already."""
    base = directory / "project"
    base.mkdir()
    leave(Project(base).use()[0])
    return base


@pytest.fixture
def project(base: Path) -> Iterator[Project]:
    project = Project(base)
    yield project
    project.end()


@pytest.fixture
def fresh(directory: Path) -> Iterator[Callable[..., Project]]:
    """Make projects that have no cluster yet."""
    made: list[Project] = []

    def make(**env: str) -> Project:
        made.append(Project(Path(tempfile.mkdtemp(dir=directory)), **env))
        return made[-1]

    yield make
    for project in made:
        project.end()


def test_the_last_user_stops_it(project: Project) -> None:
    first, url = project.use()
    second, same_url = project.use()
    assert same_url == url
    pid = server(url)
    leave(first)
    assert server(url) == pid
    leave(second)
    assert stopped(url)


def test_four_first_starts_at_once_make_one_server(fresh: Callable[..., Project]) -> None:
    project = fresh()
    users = [project.spawn() for _ in range(4)]
    urls = {url_of(user) for user in users}
    assert len(urls) == 1
    url = urls.pop()
    assert query(url, "SELECT count(*) FROM pg_database WHERE datname = 'pgjobs'") == 1
    for user in users:
        leave(user)
    assert stopped(url)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_user_does_not_pin_it(project: Project, how: signal.Signals) -> None:
    victim, url = project.use()
    pid = server(url)
    victim.send_signal(how)
    assert victim.wait() == -how
    assert server(url) == pid
    leave(project.use()[0])
    assert stopped(url)


def test_it_recovers_when_the_server_is_killed(project: Project) -> None:
    _, url = project.use()
    pid = server(url)
    query(url, "CREATE TABLE kept AS VALUES (42)")
    os.kill(pid, signal.SIGKILL)
    _, same_url = project.use()  # at once, while the first user is still there
    assert same_url == url
    assert server(url) != pid
    assert query(url, "SELECT column1 FROM kept") == 42
    query(url, "DROP TABLE kept")


def test_it_waits_for_a_busy_orphan_of_a_killed_server(project: Project) -> None:
    """An orphan that computes does not notice the death of its server, and holds the shared memory until it does."""
    _, url = project.use()
    orphan = psycopg.pq.PGconn.connect(url.encode())
    orphan.send_query(b"SELECT count(*) FROM generate_series(1, 6000000)")
    wait_until(lambda: query(url, "SELECT count(*) = 2 FROM pg_stat_activity WHERE state = 'active'"), "it computes")
    os.kill(server(url), signal.SIGKILL)
    project.use()
    assert query(url, "SELECT 1") == 1
    orphan.finish()


def test_a_stale_pid_that_now_is_somebody_elses_is_no_server(project: Project) -> None:
    user, url = project.use()
    leave(user)
    as_server = {"user": "nobody", "group": "nogroup", "extra_groups": []} if AS_ROOT else {}
    with subprocess.Popen(["sleep", "60"], **as_server) as stranger:
        lines = [
            str(stranger.pid),
            str(home(url) / "data"),
            "1700000000",
            "5432",
            str(home(url)),
            "",
            "1 1",
            "ready   ",
        ]
        for file in ("data/postmaster.pid", f"{devpg.SOCKET}.lock"):
            (home(url) / file).write_text("\n".join(lines) + "\n")
        user, _ = project.use()
        assert server(url) != stranger.pid
        leave(user)
        assert stopped(url)
        assert stranger.poll() is None
        stranger.kill()


def test_a_server_that_lost_its_socket_is_replaced(project: Project) -> None:
    _, url = project.use()
    pid = server(url)
    (home(url) / devpg.SOCKET).unlink()
    project.use()
    assert server(url) != pid


def test_an_initdb_killed_half_way_is_made_anew(fresh: Callable[..., Project]) -> None:
    project = fresh()
    victim = project.spawn()
    wait_until(lambda: list(project.base.parent.rglob("initdb-*")), "initdb begins")
    victim.kill()
    victim.wait()
    user, url = project.use()
    assert query(url, "SELECT 1") == 1
    leave(user)
    assert stopped(url)


@pytest.mark.parametrize("code", [FORK, EXEC], ids=["forked", "executed"])
def test_a_child_that_outlives_its_parent_keeps_it_and_stops_it(project: Project, code: str) -> None:
    parent, url = project.use(code)
    parent.wait()
    assert query(url, "SELECT 1") == 1
    parent.stdin.close()  # also the child's
    wait_until(lambda: stopped(url), "the child ends, and stops the server")


def test_the_callers_environment_does_not_reach_the_server(fresh: Callable[..., Project]) -> None:
    project = fresh(LC_ALL="xx_YY", LANG="xx_YY", TZ="Nowhere", PGPORT="1", PGDATA="/nonexistent", PGHOST="nowhere")
    project.env.pop("HOME", None)
    user, url = project.use()
    assert query(url, "SHOW port") == "5432"
    leave(user)


def test_a_damaged_cluster_is_reported_in_one_message(fresh: Callable[..., Project]) -> None:
    project = fresh()
    user, url = project.use()
    leave(user)
    control = home(url) / "data/global/pg_control"
    control.rename(control.with_suffix(".away"))
    user = project.spawn()
    _, errors = user.communicate()
    assert user.returncode == 1
    assert "Traceback" not in errors
    assert "could not find the database system" in errors
    assert f"remove {home(url)}" in errors
    assert "DATABASE_URL" in errors
    control.with_suffix(".away").rename(control)


@pytest.mark.skipif(not AS_ROOT, reason="only root's server runs as another user")
def test_as_root_binaries_that_nobody_can_reach_are_copied_once(directory: Path, fresh: Callable[..., Project]) -> None:
    wheel = Path(devpg.importlib.util.find_spec(devpg.WHEEL).submodule_search_locations[0])
    closed = directory / "closed"
    closed.mkdir(mode=0o700)
    shutil.copytree(wheel.parent / f"{devpg.WHEEL}.libs", closed / f"{devpg.WHEEL}.libs")
    shutil.copytree(wheel / "pginstall18", closed / devpg.WHEEL / "pginstall18")
    (closed / devpg.WHEEL / "__init__.py").touch()
    project = fresh(PYTHONPATH=f"{closed}:{CHECKOUT}", DEVPG_BIN="", DEVPG_VERSION="18")
    users = [project.spawn() for _ in range(2)]
    url = {url_of(user) for user in users}.pop()
    command = Path(f"/proc/{server(url)}/cmdline").read_text()
    assert command.startswith(f"{directory}/pgjobs-devpg-0/pginstall18-")
    assert closed.stat().st_mode & 0o777 == 0o700
    for user in users:
        leave(user)
