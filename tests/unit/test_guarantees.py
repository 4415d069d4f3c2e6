"""The page of guarantees names tests that exist, and leaves out none of the chapters."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

BASE_DIR = Path(__file__).resolve().parent.parent.parent
PAGE = (BASE_DIR / "docs" / "explanation" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))


@pytest.mark.parametrize(("file", "name"), NAMED)
def test_a_named_test_exists(file: str, name: str) -> None:
    tree = ast.parse((BASE_DIR / file).read_text())
    assert name in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_each_promise_names_a_test() -> None:
    promises = [
        line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith(("| ---", "| Promise"))
    ]
    assert len(promises) > 30
    assert [line for line in promises if "::test_" not in line] == []
