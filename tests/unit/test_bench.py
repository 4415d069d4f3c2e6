"""What is made of measured samples: ratios, verdicts, JSON, the page of the docs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.__main__ import FIGURES
from tests.bench.results import Bar, Result, Row, Series, number, percentile

ROW = Row(
    "one process",
    Series("pgjobs", "jobs/s", [9_000, 12_000, 10_000]),
    Series("raw", "jobs/s", [20_000, 16_000, 18_000]),
    Bar(0.5),
)
RESULT = Result(
    figure="drain",
    title="Drain",
    command="python -m tests.bench drain",
    at="2026-01-02T03:04:05+00:00",
    quick=False,
    machine={"cores": 2, "system": "Linux", "memory_gib": 24, "processor": "x"},
    versions={"Python": "3.11", "pgjobs": "abc"},
    server={"server_version": "18.4", "fsync": "on"},
    rows=[ROW, Row("idle", Series("statements", "a minute", [31]), bar=Bar(30, at_most=True), note="by role")],
    skipped=["django-ox 1.9.1: pip: no such version"],
)


def test_a_row_is_judged_by_medians_and_shows_its_spread() -> None:
    assert ROW.ratio == pytest.approx(10 / 18)
    assert ROW.ratios == [9 / 20, 12 / 16, 10 / 18]
    assert ROW.ratio_text == "0.56 [0.45–0.75]"
    assert (ROW.verdict, RESULT.rows[1].verdict) == ("meets", "falls short")
    assert dataclasses.replace(ROW, bar=Bar(0.56)).verdict == "falls short"
    assert dataclasses.replace(ROW, bar=None).verdict == ""
    assert str(ROW.measured) == "10,000 [9,000–12,000] jobs/s"


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile(range(1, 101), p) for p in (50, 95, 99, 100)] == [50, 95, 99, 100]
    assert percentile([7.0], 99) == 7
    assert (number(1234.5), number(12.34), number(0.056)) == ("1,234", "12.3", "0.06")


def test_a_result_survives_json(tmp_path: Path) -> None:
    RESULT.write(tmp_path / "new" / "drain.json")
    assert Result.read(tmp_path / "new" / "drain.json") == RESULT


def test_the_page_has_a_place_for_every_figure_and_takes_results_twice() -> None:
    page = report.PAGE.read_text()
    assert {match[2] for match in report.SECTION.finditer(page)} == {*FIGURES, "summary", "machine"}
    once = report.fill(page, [RESULT])
    assert report.fill(once, [RESULT]) == once
    for what in ("one process", f"{RESULT.figure}: one process"):  # the figure's own table, and all at a glance
        assert once.count(f"| {what} | 10,000 [9,000–12,000] jobs/s | raw: 18,000") == 1
    assert "| idle | 31.0 a minute |  |  | ≤ 30.0 | falls short |" in once
    assert "* Not measured here: django-ox" in once
    assert "PostgreSQL 18.4 with `fsync` on" in once
    assert report.fill(once, []) == once  # what is not measured anew stays


def test_quick_results_and_unknown_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="--quick"):
        report.fill(report.PAGE.read_text(), [dataclasses.replace(RESULT, quick=True)])
    with pytest.raises(ValueError, match="no <!-- bench:NAME --> for surprise"):
        report.fill(report.PAGE.read_text(), [dataclasses.replace(RESULT, figure="surprise")])
