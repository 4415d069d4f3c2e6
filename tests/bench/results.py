"""What a figure is: samples, the reference they were taken beside, the bar; as a table and as JSON."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Series:
    """What was measured again and again: one sample a run."""

    name: str
    unit: str
    samples: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    def __str__(self) -> str:
        spread = f" [{number(min(self.samples))}–{number(max(self.samples))}]" if len(self.samples) > 1 else ""
        return f"{number(self.median)}{spread} {self.unit}"


@dataclass(frozen=True, slots=True)
class Bar:
    """What is asked for: of the ratio to the reference, or (without a reference) of the value itself."""

    limit: float
    at_most: bool = False
    aim: float | None = None

    def met_by(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def __str__(self) -> str:
        aim = f" ({number(self.aim)})" if self.aim is not None else ""
        return f"{'≤' if self.at_most else '≥'} {number(self.limit)}{aim}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a figure. ``note`` says what a reader has to know to judge it."""

    what: str
    measured: Series
    reference: Series | None = None
    bar: Bar | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Median over median; None without a reference."""
        return None if self.reference is None else self.measured.median / (self.reference.median or math.nan)

    @property
    def ratios(self) -> list[float]:
        """Run by run, for the spread: the two samples of one run were taken next to each other."""
        if self.reference is None:
            return []
        return [a / (b or math.nan) for a, b in zip(self.measured.samples, self.reference.samples, strict=False)]

    @property
    def judged(self) -> float:
        """What the bar is about."""
        return self.measured.median if self.ratio is None else self.ratio

    @property
    def verdict(self) -> str:
        """Whether the bar is met; empty without a bar."""
        if self.bar is None:
            return ""
        return "meets" if self.bar.met_by(self.judged) else "falls short"

    @property
    def ratio_text(self) -> str:
        if self.ratio is None:
            return ""
        spread = f" [{number(min(self.ratios))}–{number(max(self.ratios))}]" if len(self.ratios) > 1 else ""
        return number(self.ratio) + spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run of one command."""

    figure: str
    title: str
    command: str
    at: str
    quick: bool
    machine: dict[str, Any]
    versions: dict[str, str]
    server: dict[str, str]
    rows: list[Row]
    skipped: list[str] = field(default_factory=list)

    def write(self, path: Path) -> None:
        """As JSON, with the medians, ratios and verdicts that follow from the samples."""
        data = dataclasses.asdict(self)
        for row, plain in zip(self.rows, data["rows"], strict=True):
            plain |= {"median": row.measured.median, "ratio": row.ratio, "verdict": row.verdict}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def read(cls, path: Path) -> Result:
        data = json.loads(path.read_text())
        data["rows"] = [_row(plain) for plain in data["rows"]]
        return cls(**data)


def _row(plain: dict[str, Any]) -> Row:
    return Row(
        plain["what"],
        Series(**plain["measured"]),
        Series(**plain["reference"]) if plain["reference"] else None,
        Bar(**plain["bar"]) if plain["bar"] else None,
        plain["note"],
    )


def number(value: float) -> str:
    """As a reader wants it: three digits that count, thousands apart."""
    if math.isnan(value):
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


HEADINGS = ("", "measured", "beside it", "ratio", "bar (aim)", "")


def lines(rows: Iterable[Row]) -> list[tuple[str, ...]]:
    """The cells of a table with HEADINGS."""
    return [
        (
            row.what,
            str(row.measured),
            f"{row.reference.name}: {row.reference}" if row.reference else "",
            row.ratio_text,
            str(row.bar) if row.bar else "",
            row.verdict,
        )
        for row in rows
    ]


def show(result: Result) -> None:
    """The table, on standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table(*HEADINGS, title=result.title + (" (quick: these figures mean nothing)" if result.quick else ""))
    for cells in lines(result.rows):
        if result.quick:
            cells = (*cells[:-1], "")
        table.add_row(*cells, style="red" if cells[-1] == "falls short" else "")
    console = Console()
    if not console.is_terminal:
        console.width = 160  # whoever reads a file or a log scrolls
    console.print(table)
    for row in result.rows:
        if row.note:
            console.print(f"{row.what}: {row.note}", highlight=False)
    for line in result.skipped:
        console.print(f"skipped: {line}", highlight=False, style="yellow")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value below which so many percent of the values lie (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(len(ordered) * percent / 100) - 1))]
