"""What the demo prints: a table that fills, in a terminal; plain lines in a file or a pipe."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from example_project.demo.flows import Step
from example_project.demo.watching import Seen

COLOURS = {"done": "green", "dead": "red", "failed": "red", "cancelled": "red", "reserved": "yellow"}
WORDS = {"reserved": "running", "pending": "waiting"}


def console() -> Console:
    """A terminal's own width; in a file or a pipe wide enough for a row to stay a line."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=140)


@contextlib.contextmanager
def progress(out: Console) -> Iterator[Callable[[Iterable[Seen]], None]]:
    """Yields a function that shows how the steps are now; call it often."""
    if out.is_terminal:
        with Live(console=out, auto_refresh=False) as live:
            yield lambda steps: live.update(table(steps), refresh=True)
        return
    said: set[Step] = set()
    latest: list[Seen] = []

    def say_what_is_new(steps: Iterable[Seen]) -> None:
        latest[:] = steps
        for seen in latest:
            if seen.ended and seen.step not in said:
                said.add(seen.step)
                out.print(
                    f"  {seen.step.kind} {seen.status}, {attempts(seen)}, {duration(seen)}",
                    markup=False,
                    soft_wrap=True,
                )

    yield say_what_is_new
    out.print(table(latest))


def table(steps: Iterable[Seen]) -> Table:
    """A row for each step."""
    result = _table("Flow", "Kind", "Status", ">Jobs", ">Attempts", ">Took")
    result.add_column("Last error")  # the only one that gives way in a narrow terminal
    for seen in steps:
        status = WORDS.get(seen.status, seen.status)
        result.add_row(
            seen.step.flow,
            seen.step.kind,
            Text(status, COLOURS.get(seen.status, "")),
            f"{seen.step.many or 1:,}",
            f"{seen.attempts:,}",
            duration(seen),
            Text(
                seen.error or seen.progress,
                "red" if seen.status == "dead" else "dim",
                no_wrap=True,
                overflow="ellipsis",
            ),
        )
    return result


def complaints(steps: Iterable[Seen]) -> Table:
    """What is not as it should be, beside what was expected."""
    result = _table("Flow", "Kind", ">Job", "Expected", "Found")
    for seen in steps:
        step = seen.step
        expected = f"{step.many or 1:,} {step.status}" + (f", {step.attempts} attempts" if step.attempts else "")
        result.add_row(step.flow, step.kind, str(step.job_id), expected, Text(seen.complaint(), "red"))
    return result


def _table(*headings: str) -> Table:
    result = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for heading in headings:
        result.add_column(heading.removeprefix(">"), justify="right" if heading[0] == ">" else "left", no_wrap=True)
    return result


def attempts(seen: Seen) -> str:
    return f"{seen.attempts:,} attempt{'s' * (seen.attempts != 1)}"


def duration(seen: Seen) -> str:
    return "" if seen.seconds is None else f"{seen.seconds:.2f} s"
