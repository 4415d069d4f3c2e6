"""Statements that a worker with nothing to do sends in a minute, by the server's own log (``log_statement = all``)."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass

from .results import Bar, Row, Series
from .rig import Rig

TITLE = "An idle worker"

STATEMENT = re.compile(r"^([^|]*)\|LOG:  (?:statement|execute [^:]*): ", re.M)


@dataclass(frozen=True)
class Size:
    settle_seconds: float = 30
    seconds: float = 60


QUICK = Size(settle_seconds=0.2, seconds=1)


def statements(rig: Rig, size: Size, *args: str) -> Counter[str]:
    """How many each role of a worker sent."""
    rig.empty()
    with rig.logging(log_statement="all"), rig.worker(*args):
        time.sleep(size.settle_seconds)  # what it does only once, after its start, is not idleness
        _, offset = rig.log_from()
        time.sleep(size.seconds)
        text, _ = rig.log_from(offset)
    return Counter(name or "without a name" for name in STATEMENT.findall(text))


def measure(rig: Rig, size: Size) -> list[Row]:
    rows = []
    ways = (("with LISTEN", (), Bar(30, True, 20)), ("without (--no-listen)", ("--no-listen",), Bar(90, True, 70)))
    for what, args, bar in ways:
        some = [statements(rig, size, *args) for _ in range(rig.runs)]
        minutes = size.seconds / 60
        rig.say(f"{what}: {[one.total() for one in some]}")
        rows.append(
            Row(
                what,
                Series("statements", "a minute", [one.total() / minutes for one in some]),
                bar=bar,
                note=", ".join(f"{name} {count / minutes:.0f}" for name, count in sorted(some[-1].items())),
            )
        )
    return rows
