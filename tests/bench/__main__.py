"""Measure: ``python -m tests.bench drain --json FILE``. Real figures want an idle machine; ``--quick`` only tries it out."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import shlex
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from . import report, results, rig
from .rig import Rig

FIGURES = (
    "drain",
    "pickup",
    "late-commit",
    "enqueue",
    "enqueue-many",
    "claim",
    "snapshot",
    "steady",
    "notify",
    "idle",
    "memory",
    "peers",
)


def module_of(figure: str) -> ModuleType:
    return import_module(f"tests.bench.{figure.replace('-', '_')}")


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for figure in FIGURES:
        module = module_of(figure)
        head, _, rest = (module.__doc__ or "").partition("\n\n")
        one = commands.add_parser(figure, help=module.TITLE, description=head, epilog=rest)
        one.add_argument("--runs", type=int, help=f"of each thing, in turns ({getattr(module, 'RUNS', 5)})")
        one.add_argument("--quick", action="store_true", help="tiny sizes, one run: does it work?")
        one.add_argument("--json", type=Path, metavar="FILE", help="write samples and verdicts there")
        if figure == "peers":
            one.add_argument("--only", nargs="+", metavar="PEER", help="only these; names as in the table")
        for field in dataclasses.fields(module.Size):
            kind = {"int": int, "float": float}[field.type]
            one.add_argument(f"--{field.name.replace('_', '-')}", type=kind, metavar="N", help=f"{field.default:,}")
    one = commands.add_parser("all", help="every figure, one after the other")
    one.add_argument("figures", nargs="*", metavar="FIGURE", help="only these")
    one.add_argument("--runs", type=int, help="of each thing in each figure, in turns")
    one.add_argument("--quick", action="store_true", help="tiny sizes, one run, one server: does it work?")
    one.add_argument("--json", type=Path, metavar="DIRECTORY", required=True, help="write FIGURE.json there")
    for name, what in (("report", "docs/explanation/performance.md"), ("plot", "pictures in docs/images")):
        one = commands.add_parser(name, help=f"make {what} from results")
        one.add_argument("results", type=Path, nargs="+", metavar="FILE.json")
        one.add_argument("--to", type=Path, metavar="PATH", help=f"instead of {what}")
    return parser


def measure(one: Rig, figure: str, options: argparse.Namespace) -> results.Result:
    """One figure, with all that a reader has to know of the run."""
    module = module_of(figure)
    size = module.QUICK if options.quick else module.Size()
    given = {f.name: getattr(options, f.name, None) for f in dataclasses.fields(module.Size)}
    size = dataclasses.replace(size, **{name: value for name, value in given.items() if value is not None})
    one.runs = options.runs or (1 if options.quick else getattr(module, "RUNS", 5))
    one.skipped, one.beside = [], {}
    at, machine = dt.datetime.now(dt.UTC), rig.machine()
    extra = {"only": options.only} if getattr(options, "only", None) else {}
    rows = module.measure(one, size, **extra)
    return results.Result(
        figure=figure,
        title=module.TITLE,
        command=f"python -m tests.bench {shlex.join([figure, *_arguments(options)])}",
        at=at.isoformat(timespec="seconds"),
        quick=options.quick,
        machine=machine,
        versions=rig.versions() | one.beside,
        server={name: one.query(f"SHOW {name}") for name in rig.REPORTED},
        rows=rows,
        skipped=one.skipped,
    )


def _arguments(options: argparse.Namespace) -> list[str]:
    """What was asked for beside the figure, as somebody else would type it; not where the result went."""
    kept: list[str] = []
    for name, value in vars(options).items():
        if name in ("command", "json") or value in (None, False):
            continue
        kept.append(f"--{name.replace('_', '-')}")
        if value is not True:
            kept += map(str, value) if isinstance(value, list) else [str(value)]
    return kept


def measure_all(options: argparse.Namespace) -> None:
    """Every figure, each by a process and on a server of its own, unless it is only tried whether they work."""
    figures = options.figures or FIGURES
    if not options.quick:
        runs = ["--runs", str(options.runs)] if options.runs else []
        for figure in figures:
            file = str(options.json / f"{figure}.json")
            subprocess.run([sys.executable, "-m", "tests.bench", figure, *runs, "--json", file], check=True)
        return
    one = Rig()
    try:
        for figure in figures:
            result = measure(one, figure, options)
            results.show(result)
            result.write(options.json / f"{figure}.json")
    finally:
        one.close()


def _end(number: int, frame: object) -> None:
    """Told to end: the server goes too, and a second signal does not cut that short."""
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(f"told to end by {signal.Signals(number).name}")


def main() -> int:
    options = make_parser().parse_args()
    signal.signal(signal.SIGTERM, _end)
    if options.command == "report":
        report.write([results.Result.read(path) for path in options.results], options.to)
        return 0
    if options.command == "plot":
        from . import plot

        plot.draw([results.Result.read(path) for path in options.results], options.to)
        return 0
    if options.command == "all":
        measure_all(options)
        return 0
    one = Rig()
    try:
        result = measure(one, options.command, options)
    finally:
        one.close()
    results.show(result)
    if options.json:
        directory = options.json.is_dir()  # after minutes of measuring nobody wants to be told that it is none
        result.write(options.json / f"{options.command}.json" if directory else options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
