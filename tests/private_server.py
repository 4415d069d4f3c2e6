"""A PostgreSQL of one test's own, or of the chaos test: it may be stopped, restarted and frozen. Needs no Django."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg

from example_project import devpg

BASE_DIR = Path(__file__).resolve().parent.parent


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


class Server:
    """A PostgreSQL that tests may stop, restart and freeze; it speaks through a Unix socket only."""

    def __init__(self) -> None:
        located = devpg._locate(BASE_DIR)
        temporary = next(Path(path) for path in ("/var/tmp", "/tmp") if devpg._open_to_all(Path(path)))  # noqa: S108
        for left in temporary.glob("pgjobs-server-*-*"):  # by a run that was killed
            if left.stat().st_uid == os.geteuid() and not _alive(int(left.name.split("-")[2])):
                devpg._Cluster(left, located.binaries, located.major, located.user).stop()
                shutil.rmtree(left, ignore_errors=True)
        self.place = Path(tempfile.mkdtemp(prefix=f"pgjobs-server-{os.getpid()}-", dir=temporary))
        self.place.chmod(0o711)
        self._cluster = devpg._Cluster(self.place, located.binaries, located.major, located.user)
        self._cluster.start()

    @property
    def socket(self) -> Path:
        return self._cluster.home / devpg.SOCKET

    def url(self, database: str = "jobs") -> str:
        return f"postgres://postgres@/{database}?host={quote(str(self._cluster.home))}&port=5432"

    def start(self) -> None:
        self._cluster.start()

    def stop(self, mode: str = "fast") -> None:
        done = self._cluster.run("pg_ctl", "stop", "-w", "-D", self._cluster.data, "-m", mode)
        assert done.returncode == 0, done.stdout + done.stderr

    def restart(self) -> None:
        self.stop()
        self.start()

    def configure(self, settings: str) -> None:
        """Add lines to postgresql.conf, and restart: also for what is read at the start only."""
        self.stop()
        with open(self._cluster.data / "postgresql.conf", "a") as file:
            file.write(f"\n{settings}\n")
        self.start()

    @property
    def running(self) -> bool:
        return self._cluster.pid_file() is not None

    def create_database(self, name: str) -> None:
        self._cluster.create_database(name)

    def connect(self, database: str = "jobs") -> psycopg.Connection[Any]:
        return psycopg.connect(
            host=str(self._cluster.home), port=5432, user="postgres", dbname=database, autocommit=True
        )

    def query(self, sql: str, *parameters: Any) -> Any:
        """The first column of the first row; None without rows."""
        with self.connect() as connection:
            cursor = connection.execute(sql, parameters)  # type: ignore[arg-type]
            row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None

    def remove(self) -> None:
        if self.running:
            self.stop("immediate")
        shutil.rmtree(self.place, ignore_errors=True)
