"""``manage.py check``."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from pgjobs.checks import check_settings


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, []),
        ({"QUEUES": None}, []),
        ({"LEASES": 5}, ["pgjobs.E001 PGJOBS: 'LEASES' is not a setting; did you mean 'LEASE'?"]),
        ({"DATABASE": "nowhere"}, ["pgjobs.E002 PGJOBS['DATABASE'] is 'nowhere', no alias of DATABASES."]),
        (
            {"QUEUES": ["default", "mail", "imports", "crm"]},
            [
                "pgjobs.E004 @job on tests.testapp.jobs.add: its queue 'sums' is none of PGJOBS['QUEUES']: "
                "default, mail, imports, crm."
            ],
        ),
    ],
)
def test_what_is_said_of_the_settings(given: dict[str, Any], said: list[str]) -> None:
    with override_settings(PGJOBS=given):
        assert [f"{message.id} {message.msg}" for message in check_settings()] == said
