"""What the docs say is what the code does."""

import doctest
import re
from pathlib import Path
from runpy import run_path

from pgjobs import conf
from pgjobs.api.registry import registry

ROOT = Path(__file__).resolve().parents[2]


def test_the_settings_page_is_made_from_the_dataclass() -> None:
    page = run_path(str(ROOT / "docs" / "settings_page.py"))["page"]()
    assert (ROOT / "docs/reference/settings.md").read_text() == page
    assert all(f"| `{name}` |" in page for name in conf.FIELDS)


def test_every_relative_link_leads_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages
        for link in re.findall(r"\]\((?!https?:|#)([^)#]+)", re.sub(r"```.*?```", "", page.read_text(), flags=re.S))
        if not (page.parent / link).exists()
    ]
    assert not broken


def test_every_fault_that_a_test_names_is_explained() -> None:
    page = (ROOT / "docs/explanation/faults.md").read_text()
    named = {
        number
        for path in (ROOT / "tests").rglob("*.py")
        for number in re.findall(r"\bF\d{1,3}\b", path.read_text())
        if number != "F403"  # a rule of the linter
    }
    assert not {number for number in named if f"| {number} |" not in page}
    rows = re.findall(r"^\| (F\d+) \| .* \| (.*) \|$", page, re.M)
    shown = [(number, path) for number, paths in rows for path in re.findall(r"`(tests/[^`]+)`", paths)]
    assert not [(number, path) for number, path in shown if not re.search(rf"\b{number}\b", (ROOT / path).read_text())]


def test_the_examples_of_time_zones_give_what_they_say() -> None:
    page = ROOT / "docs/explanation/time-zones.md"
    assert doctest.testfile(str(page), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE) == (0, 3)


def test_the_code_of_the_how_to_on_schedules_registers() -> None:
    [code] = re.findall(r"```python\n(.*?)```", (ROOT / "docs/how-to/schedules.md").read_text(), re.S)
    known = set(registry.handlers())
    namespace = {"__name__": "shop.jobs"}
    exec(compile(code.replace("from __future__", "#"), "shop/jobs.py", "exec"), namespace)  # noqa: S102
    try:
        names = [one.name for handler in set(registry.handlers()) - known for one in handler.schedules]
        assert sorted(map(str, names)) == ["close_the_books", "fetch_rates", "monthly report", "report"]
    finally:
        for handler in set(registry.handlers()) - known:
            registry.remove(handler)
