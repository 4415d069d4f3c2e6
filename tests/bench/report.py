"""Puts measured figures into docs/explanation/performance.md: ``python -m tests.bench report RESULTS.json …``.

The page's text is written by hand; between ``<!-- bench:NAME -->`` and ``<!-- /bench -->`` stands what this makes. NAME is a
figure, ``summary`` (every row that has a bar), or ``machine``. A figure without a result keeps what stands there. Runs with
``--quick`` are refused: their figures mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from .results import Result, Row, lines

BASE_DIR = Path(__file__).resolve().parent.parent.parent
PAGE = BASE_DIR / "docs" / "explanation" / "performance.md"
IMAGES = BASE_DIR / "docs" / "images"

PICTURES = {"peers": ("bench-throughput.svg", "bench-pickup.svg"), "claim": ("bench-claim.svg",)}
"""Which pictures of ``plot`` belong to which figure."""

SECTION = re.compile(r"(<!-- bench:([\w-]+) -->\n).*?(<!-- /bench -->)", re.S)


def write(results: Sequence[Result], to: Path | None = None) -> None:
    """Refresh the page at ``to`` (the docs' own); ValueError for quick results and for figures that it has no place for."""
    page = fill(PAGE.read_text(), results)
    (to or PAGE).write_text(page)


def fill(page: str, results: Sequence[Result]) -> str:
    """The page with these results in their places."""
    if quick := [result.figure for result in results if result.quick]:
        raise ValueError(f"measured with --quick, which means nothing: {', '.join(quick)}")
    made = {result.figure: figure(result) for result in results}
    if results:
        made["summary"] = summary(results)
        made["machine"] = machine(results)
    places = {match[2] for match in SECTION.finditer(page)}
    if lost := made.keys() - places:
        raise ValueError(f"the page has no <!-- bench:NAME --> for {', '.join(sorted(lost))}")
    return SECTION.sub(
        lambda match: match[1] + made.get(match[2], match[0][len(match[1]) : -len(match[3])]) + match[3], page
    )


def table(rows: Iterable[Row], first: str = "") -> str:
    """A Markdown table."""
    cells = [(first, "measured", "beside it", "ratio", "bar (aim)", "verdict"), *lines(rows)]
    head, *body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |\n" for row in cells]
    return head + "|---" * len(cells[0]) + "|\n" + "".join(body)


def figure(result: Result) -> str:
    """The command, its table, and what a reader has to know beside it."""
    notes = [f"* {row.what}: {row.note}\n" for row in result.rows if row.note]
    notes += [f"* Not measured here: {line}\n" for line in result.skipped]
    pictures = [
        f"![{result.title}](../images/{name})\n\n"
        for name in PICTURES.get(result.figure, ())
        if (IMAGES / name).exists()
    ]
    return "".join(
        [f"\n    {result.command}\n\n", table(result.rows), *(["\n"] if notes else []), *notes, "\n", *pictures]
    )


def summary(results: Sequence[Result]) -> str:
    """Every row that has a bar."""
    named = (replace(row, what=f"{result.figure}: {row.what}") for result in results for row in result.rows if row.bar)
    return "\n" + table(named) + "\n"


def machine(results: Sequence[Result]) -> str:
    """Where and with what; a line for each that differs between the runs."""
    some = []
    for result in results:
        where, versions, server = result.machine, result.versions, result.server
        settings = ", ".join(f"`{name}` {value}" for name, value in server.items() if name != "server_version")
        some.append(
            f"{where.get('cores')} cores ({where.get('processor', 'unknown')}), {where.get('memory_gib', '?')} GiB, "
            f"{where.get('system')}; PostgreSQL {server['server_version']} with {settings}; "
            + ", ".join(f"{name} {version}" for name, version in versions.items())
        )
    lines = [
        f"* {line}: {', '.join(r.figure for r, other in zip(results, some, strict=True) if other == line)} "
        f"({min(r.at for r, other in zip(results, some, strict=True) if other == line)[:10]})\n"
        for line in dict.fromkeys(some)
    ]
    return "\n" + "".join(lines) + "\n"
