"""The tests' settings for the type checker, which needs no server."""

import os

os.environ["DATABASE_URL"] = "postgres:///unused"

from tests.settings import *  # noqa: F403
