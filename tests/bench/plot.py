"""Pictures for the docs, from results: ``python -m tests.bench plot RESULTS.json …``. Needs matplotlib (the extra ``bench``)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from .report import IMAGES
from .results import Result, Series, number

OURS, THEIRS, LIMIT = "#0c4b33", "#9aa5a0", "#d8b365"
"""Colours: pgjobs, other queues, bare SQL."""

Bars = list[tuple[str, Series, str]]


def draw(results: Sequence[Result], to: Path | None = None) -> None:
    """Each picture whose results are there, as SVG, into the directory ``to``; the same results give the same files."""
    place = to or IMAGES
    place.mkdir(parents=True, exist_ok=True)
    mpl.rcParams |= {"svg.hashsalt": "pgjobs", "font.family": "sans-serif", "svg.fonttype": "none"}
    found = {result.figure: result for result in results}
    bars(
        place / "bench-throughput.svg", throughput(found), "No-op jobs per second, drain of a backlog (more is better)"
    )
    bars(place / "bench-pickup.svg", pickups(found), "From enqueue to start on an idle worker, median (less is better)")
    bars(place / "bench-claim.svg", claims(found), "A running worker's median claim (less is better)")


def throughput(found: dict[str, Result]) -> Bars:
    some: Bars = []
    for row in found["drain"].rows if "drain" in found else ():
        some.append((f"pgjobs, {row.what}", row.measured, OURS))
        if row.reference:
            some.append((row.reference.name, row.reference, LIMIT))
    rows = found["peers"].rows if "peers" in found else ()
    some += [
        (row.reference.name, row.reference, THEIRS) for row in rows if row.reference and row.what.startswith("drain")
    ]
    return sorted(some, key=lambda one: -one[1].median)


def pickups(found: dict[str, Result]) -> Bars:
    some: Bars = []
    for row in found["pickup"].rows if "pickup" in found else ():
        if row.what == "p50" and row.reference:
            some += [("pgjobs", row.measured, OURS), (row.reference.name, row.reference, LIMIT)]
    rows = found["peers"].rows if "peers" in found else ()
    some += [
        (row.reference.name, row.reference, THEIRS)
        for row in rows
        if row.reference and row.what.startswith("pick-up p50")
    ]
    return sorted(some, key=lambda one: one[1].median)


def claims(found: dict[str, Result]) -> Bars:
    rows = found["claim"].rows if "claim" in found else ()
    base: Bars = [(row.reference.name, row.reference, LIMIT) for row in rows[:1] if row.reference]
    return base + [(row.what, row.measured, OURS) for row in rows]


def bars(path: Path, some: Bars, title: str) -> None:
    """One horizontal bar each, with the spread of its runs; nothing when there is nothing."""
    if not some:
        return
    figure, axes = plt.subplots(figsize=(9, 0.46 * len(some) + 1.1), layout="constrained")
    values = [series.median for _, series, _ in some]
    spread = [
        [value - min(series.samples) for value, (_, series, _) in zip(values, some, strict=True)],
        [max(series.samples) - value for value, (_, series, _) in zip(values, some, strict=True)],
    ]
    places = range(len(some))
    axes.barh(places, values, xerr=spread, color=[colour for *_, colour in some], error_kw={"lw": 0.8, "capsize": 2})
    axes.set_yticks(places, [textwrap.fill(name, 44) for name, *_ in some], fontsize=9)
    axes.invert_yaxis()
    for place, value, (_, series, _) in zip(places, values, some, strict=True):
        axes.annotate(
            f" {number(value)} {series.unit}", (max(value, max(series.samples)), place), va="center", fontsize=8
        )
    axes.margins(x=0.18)
    axes.spines[["top", "right"]].set_visible(False)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
