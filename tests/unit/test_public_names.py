"""What the package promises to export."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

import pgjobs
from pgjobs import models, signals, store

PUBLIC = """
    job, enqueue, aenqueue, enqueue_many, aenqueue_many, Retry, Snooze, Fail, Cancel, JobContext, Exponential, Linear, Fixed
"""


def test_the_package_exports_what_the_design_says() -> None:
    assert sorted(pgjobs.__all__) == sorted(name.strip() for name in PUBLIC.split(","))


@pytest.mark.parametrize("module", [pgjobs, models, store])
def test_all_is_sorted_importable_and_whole(module: object) -> None:
    exported = module.__all__  # type: ignore[attr-defined]
    assert list(exported) == sorted(exported)
    public = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
    }
    assert set(exported) == public


@pytest.mark.parametrize("name", pgjobs.__all__)
def test_every_public_name_says_what_it_is(name: str) -> None:
    documented = inspect.getdoc(getattr(pgjobs, name))
    assert documented
    assert documented.strip()


def test_the_signals() -> None:
    names = {name for name in vars(signals) if name.startswith("job_")}
    assert names == {"job_enqueued", "job_started", "job_finished", "job_retried", "job_dead"}


def test_types_are_shipped() -> None:
    assert (Path(pgjobs.__file__).parent / "py.typed").exists()
