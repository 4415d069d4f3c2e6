"""Recurring jobs: how they are declared, and when they are due."""

from ..api.recurring import Schedule
from .cron import next_times
from .running_now import Ran, run_now

__all__ = ["Ran", "Schedule", "next_times", "run_now"]
