"""Recurring jobs: when they are due."""

from .cron import next_times

__all__ = ["next_times"]
