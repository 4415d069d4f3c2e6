"""Schedules that the code declares become rows; and whose code is in force while several versions run."""

from __future__ import annotations

import hashlib
import json
import logging
from typing import Any

from django.conf import settings as django_settings

from .. import store
from ..api.registry import registry
from ..conf import Settings
from ..store.calling import Connection
from . import cron

logger = logging.getLogger("pgjobs")

PATIENCE = 300.0
"""Seconds for which the declarations in force may go unseen before older ones, which were in force earlier, return."""


def declared() -> list[dict[str, Any]]:
    """Every schedule of every handler, as the rows' values; sorted by name. Durations are seconds."""
    return [
        {
            "name": name,
            "kind": handler.kind,
            "queue": None,
            "payload": {} if callable(one.payload) else dict(one.payload or {}),
            "payload_from": one.payload_from,
            "cron": one.cron or "",
            "every": one.every,
            "timezone": one.timezone,
            "misfire": one.misfire,
            "overlap": one.overlap,
            "max_lateness": one.max_lateness,
        }
        for name, (handler, one) in sorted(registry.schedules().items())
    ]


def fingerprint(declarations: list[dict[str, Any]]) -> str:
    """Equal for equal declarations."""
    return hashlib.sha256(json.dumps(declarations, sort_keys=True).encode()).hexdigest()


def problems() -> list[tuple[str, str]]:
    """(schedule, what is wrong) for each declared schedule that could never fire."""
    found = []
    for name, (handler, one) in sorted(registry.schedules().items()):
        if one.cron:
            try:
                cron.check(one.cron, one.timezone or django_settings.TIME_ZONE)
            except ValueError as e:
                found.append((name, f"@job on {handler.where}: {e}"))
    return found


class Declarations:
    """What this process's code declares, and whether it is in force; one for a worker."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._declared = declared()
        self._fingerprint = fingerprint(self._declared)
        self.state = "unsynced"
        """unsynced; current; outdated: newer code is in force, and this worker changes no schedule; unknown: no code here
        ever declared one."""

    def step(self, connection: Connection, *, force: bool = False) -> bool:
        """Bring the rows up to date, once, or see whose turn it is; False when somebody holds a row: to be called again.

        To be called at start and then each minute or so.
        """
        if self.state != "unsynced" and not force:
            state = store.declaration_state(connection, self._settings.PROJECT, self._fingerprint, patience=PATIENCE)
            if state != "stale" and not (state == "unknown" and self._declared):
                self._say(state)
                return True
        return self._sync(connection, force)

    def _sync(self, connection: Connection, force: bool) -> bool:
        done = store.sync_schedules(
            connection,
            self._settings.PROJECT,
            self._fingerprint,
            self._declared,
            zone=django_settings.TIME_ZONE,
            patience=PATIENCE,
            force=force,
        )
        if done == [("", "outdated")]:
            self._say("outdated")
            return True
        for name, action in done:
            if action == "taken":
                logger.error(
                    "schedule %r of the code: a row that the code did not make has this name; it is left alone", name
                )
            elif action != "busy":
                logger.info("schedule %r: %s", name, action)
        if any(action == "busy" for _, action in done):
            return False
        self.state = "current" if self._declared or done else "unknown"
        return True

    def _say(self, state: str) -> None:
        if state == "outdated" and self.state != "outdated":
            logger.warning(
                "newer code declares other schedules: this worker leaves them as they are (until the newer code has been away "
                "for %.0f s)",
                PATIENCE,
            )
        self.state = state


def sync(connection: Connection, settings: Settings, *, force: bool = True) -> None:
    """Make this process's declarations the ones in force, at once: after a rollback, for example."""
    Declarations(settings).step(connection, force=force)
