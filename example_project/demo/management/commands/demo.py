"""``manage.py demo``"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from example_project.demo import run
from example_project.demo.processes import DemoError


class Command(BaseCommand):
    help = (
        "Migrate, start a worker and the site, make the five flows of the example project happen, and show what became"
        " of each. Ctrl-C stops all of it."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--exit",
            action="store_true",
            help="no site; end when all jobs have: with 0 if each ended as it should, else with another code",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            code = run.exit_when_done() if options["exit"] else run.until_stopped()
        except DemoError as error:
            raise CommandError(str(error)) from error
        if code:
            raise SystemExit(code)
