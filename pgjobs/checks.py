"""System checks: settings that cannot work, and databases that cannot hold the queue. None of them asks a database."""

from __future__ import annotations

import os
from typing import Any

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, register
from django.db import connections

from . import conf
from .api.registry import registry
from .schedules import sync

TAG = "pgjobs"


@register(TAG)
def check_settings(**_: Any) -> list[CheckMessage]:
    """pgjobs.E001 for each problem of ``PGJOBS``; pgjobs.E002/E003 for the database that it names; pgjobs.E004 for each
    handler whose queue it does not have; pgjobs.E005 for each schedule that cannot be read."""
    settings, problems = conf.read(getattr(django_settings, "PGJOBS", {}), os.environ)
    found: list[CheckMessage] = [Error(f"PGJOBS: {problem}", id="pgjobs.E001") for problem in problems]
    if problems:
        return found
    if settings.DATABASE not in connections.settings:
        hint = f"There are: {', '.join(connections.settings)}."
        found.append(
            Error(f"PGJOBS['DATABASE'] is {settings.DATABASE!r}, no alias of DATABASES.", hint=hint, id="pgjobs.E002")
        )
    elif connections[settings.DATABASE].vendor != "postgresql":
        vendor = connections[settings.DATABASE].vendor
        hint = "pgjobs needs PostgreSQL 15 or newer: FOR UPDATE SKIP LOCKED, LISTEN/NOTIFY, partial indexes."
        found.append(Error(f"PGJOBS['DATABASE'] ({settings.DATABASE!r}) is {vendor}.", hint=hint, id="pgjobs.E003"))
    found += [
        Error(f"Schedule {name!r}: {problem}", hint="It would never fire.", id="pgjobs.E005")
        for name, problem in sync.problems()
    ]
    if (queues := settings.QUEUES) is None:
        return found
    for handler in registry.handlers():
        if handler.queue not in queues:
            said = f"@job on {handler.where}: its queue {handler.queue!r} is none of PGJOBS['QUEUES']: {', '.join(queues)}."
            found.append(Error(said, hint="Until one of the two changes, its enqueue() fails.", id="pgjobs.E004"))
    return found
