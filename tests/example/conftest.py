"""Fixtures of the example project's tests: directories and a CRM of their own, and the context of a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from example_project.crm.server import serving
from example_project.crm.service import FlakyCrm
from pgjobs import JobContext


@pytest.fixture(autouse=True)
def directories(settings: Any, tmp_path: Path) -> Path:
    """What the example writes goes to a directory of the test."""
    settings.VAR_DIR, settings.MEDIA_ROOT, settings.REPORTS_DIR = tmp_path, tmp_path / "media", tmp_path / "reports"
    return tmp_path


@pytest.fixture
def crm(settings: Any) -> Iterator[FlakyCrm]:
    """A CRM that nobody has called yet, on a port of its own."""
    service = FlakyCrm()
    with serving(service) as settings.CRM_URL:
        yield service


class Holder:
    """What a context asks of its worker: remembers the progress, and may want to cancel."""

    def __init__(self) -> None:
        self.progress: list[dict[str, Any]] = []
        self.cancel = False

    def cancel_requested(self) -> bool:
        return self.cancel

    def still_owned(self) -> bool:
        return True

    def say_progress(self, progress: dict[str, Any]) -> None:
        self.progress.append(progress)


@pytest.fixture
def holder() -> Holder:
    return Holder()


@pytest.fixture
def ctx(holder: Holder) -> JobContext:
    """The context of job 7, whichever attempt."""
    log = logging.LoggerAdapter(logging.getLogger("pgjobs"), {})
    return JobContext(7, "kind", 1, 4, None, {}, log, holder)
