"""Recurring jobs: how they are declared, and when they are due."""

from ..api.recurring import Schedule
from .cron import next_times

__all__ = ["Schedule", "next_times"]
