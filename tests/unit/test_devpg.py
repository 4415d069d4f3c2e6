"""The private development server: what is decided before any process is started."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from example_project import devpg


@pytest.fixture(autouse=True)
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short TMPDIR of the test's own that anybody can enter, and no other setting of the launcher."""
    for name in ("DATABASE_URL", "DEVPG_URL", "DEVPG_BIN", "DEVPG_VERSION"):
        monkeypatch.setenv(name, "")  # remembered, and put back afterwards
        monkeypatch.delenv(name)
    with tempfile.TemporaryDirectory(prefix="devpg-") as name:
        path = Path(name)
        path.chmod(0o711)
        monkeypatch.setenv("TMPDIR", name)
        yield path


@pytest.fixture
def _no_binaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devpg.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(Path, "glob", lambda path, pattern: iter(()))


def test_a_url_of_the_user_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devpg, "ensure", lambda base: pytest.fail("started a server"))
    monkeypatch.setenv("DATABASE_URL", "postgres://elsewhere/db")
    assert devpg.provide(tmp_path) == "postgres://elsewhere/db"


def test_the_url_is_exported_for_children(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devpg, "ensure", lambda base: "postgres://private")
    assert devpg.provide(tmp_path) == "postgres://private"
    assert os.environ["DATABASE_URL"] == os.environ["DEVPG_URL"] == "postgres://private"


def test_an_inherited_private_url_is_joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgres://private")
    monkeypatch.setenv("DEVPG_URL", "postgres://private")
    joined: list[Path] = []
    monkeypatch.setattr(devpg, "ensure", lambda base: joined.append(base) or "postgres://private")
    devpg.provide(tmp_path)
    assert joined == [tmp_path]


@pytest.mark.usefixtures("_no_binaries")
def test_without_binaries_one_message_says_the_ways_out(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as caught:
        devpg.provide(tmp_path)
    for way in ("DATABASE_URL", "pip install", "apt-get install", "DEVPG_BIN"):
        assert way in caught.value.code


def test_binaries_that_do_not_exist_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DEVPG_BIN", str(tmp_path / "nowhere"))
    with pytest.raises(devpg.DevpgError, match="nowhere/postgres"):
        devpg.ensure(tmp_path)


def test_windows_is_told_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devpg.sys, "platform", "win32")
    with pytest.raises(devpg.DevpgError, match="set DATABASE_URL"):
        devpg.ensure(tmp_path)


@pytest.mark.parametrize("name", ["x" * 120, "it's", "a,b", "$(date)", "per%cent"])
def test_no_place_is_an_address_that_a_socket_cannot_have(temporary: Path, name: str) -> None:
    base = temporary / name
    base.mkdir()
    place = devpg._place(base)
    assert base not in place.parents
    assert len(os.fsencode(place / "pg18" / devpg.SOCKET)) <= 107


@pytest.mark.parametrize("name", [".devpg", f"pgjobs-devpg-{os.geteuid()}"])
def test_a_place_that_somebody_else_prepared_is_not_taken(temporary: Path, name: str) -> None:
    elsewhere = temporary / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (temporary / name).symlink_to(elsewhere)
    place = devpg._place(temporary)
    place.rmdir()  # it may lie outside of the test's directory
    assert not list(elsewhere.iterdir())
    assert elsewhere.stat().st_mode & 0o777 == 0o755


def test_a_directory_of_another_user_is_not_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devpg.os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="is not a directory of user"):
        devpg._make_private(tmp_path)
