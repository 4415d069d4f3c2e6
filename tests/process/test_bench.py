"""Every figure of tests/bench can be measured: tiny sizes, one server for all; what comes out means nothing, and is whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench.__main__ import FIGURES
from tests.worker_harness import BASE_DIR

pytestmark = [pytest.mark.slow, pytest.mark.minutes, pytest.mark.timeout(600)]

HERE = [figure for figure in FIGURES if figure != "peers"]
"""Other queues are not installed by a test."""


def bench(*args: object) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "DATABASE_"))}
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.bench", *map(str, args)],
        cwd=BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of all figures."""
    place = tmp_path_factory.mktemp("results")
    done = bench("all", *HERE, "--quick", "--json", place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


@pytest.mark.parametrize("figure", HERE)
def test_a_figure_is_measured(place: Path, figure: str) -> None:
    result: dict[str, Any] = json.loads((place / f"{figure}.json").read_text())
    assert result["quick"] is True
    assert result["server"]["fsync"] == result["server"]["synchronous_commit"] == "on"
    assert result["server"]["shared_buffers"] == "256MB"
    assert any(row["bar"] for row in result["rows"])
    for row in result["rows"]:
        assert all(sample >= 0 for sample in row["measured"]["samples"])
        assert row["reference"] is None or all(sample > 0 for sample in row["reference"]["samples"])


def test_no_page_is_made_of_figures_that_mean_nothing(place: Path) -> None:
    done = bench("report", place / "drain.json", "--to", place / "page.md")
    assert done.returncode == 1
    assert "--quick" in done.stderr


def test_pictures_are_drawn_of_what_there_is(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = bench("plot", place / "drain.json", place / "pickup.json", "--to", tmp_path)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench-pickup.svg", "bench-throughput.svg"]
