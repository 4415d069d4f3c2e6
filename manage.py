#!/usr/bin/env python
"""Django's command line for the example project."""

import os
import signal
import sys
from types import FrameType


def end(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def main() -> None:
    # Without this a SIGTERM ends Python on the spot, past what it has promised to do at its end, such as stopping the
    # private PostgreSQL. Commands that know better (run_jobs, demo) replace it.
    signal.signal(signal.SIGTERM, end)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
