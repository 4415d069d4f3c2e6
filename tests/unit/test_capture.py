"""The worker keeps log lines of its jobs, and takes none away from anybody."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import pytest

from pgjobs.worker import capture


@contextlib.contextmanager
def no_logging_settings() -> Iterator[None]:
    """The root logger as in a project that configures no logging, while a worker runs. (pytest has handlers on it.)"""
    root = logging.getLogger()
    before = root.handlers[:]
    root.handlers.clear()
    try:
        with capture.installed():
            yield
    finally:
        root.handlers[:] = before


@pytest.mark.parametrize("name", ["pgjobs", "pgjobs.job", "shop"])
def test_without_logging_settings_warnings_still_reach_stderr(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with no_logging_settings():
        logging.getLogger(name).warning("the database does not answer")
        logging.getLogger(name).info("of no interest to a last resort")
    assert capsys.readouterr().err == "the database does not answer\n"


def test_with_handlers_of_its_own_a_logger_writes_once(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("test_capture.own")
    with no_logging_settings():
        logger.addHandler(logging.StreamHandler())
        logger.getChild("child").warning("once")
    assert capsys.readouterr().err == "once\n"
