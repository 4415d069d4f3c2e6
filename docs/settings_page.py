"""Makes docs/reference/settings.md from the dataclass: ``python docs/settings_page.py > docs/reference/settings.md``."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator

from pgjobs import conf

HEAD = """# Settings

All in one dict in Django's settings, all optional:

```python
PGJOBS = {"LEASE": 30, "HEARTBEAT": 10, "RETENTION": {"done": "2 days"}}
```

Options of `run_jobs` come before environment variables (`PGJOBS_LEASE=30`; values are JSON), those before `PGJOBS`, that before
the defaults. Durations are seconds or timedeltas. `manage.py check` names unknown settings and those that contradict each other;
`manage.py run_jobs -v 2` prints what is in force.

| setting | default | meaning |
| --- | --- | --- |
"""


def rows() -> Iterator[tuple[str, str, str]]:
    """(name, default, meaning) of each setting, in order."""
    [tree] = ast.parse(inspect.getsource(conf.Settings)).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101
    defaults = conf.Settings().effective()
    for node, after in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            assert isinstance(after, ast.Expr), f"{node.target.id} has no docstring"  # noqa: S101
            assert isinstance(after.value, ast.Constant)  # noqa: S101
            yield (
                node.target.id,
                text(node.target.id, defaults[node.target.id]),
                " ".join(str(after.value.value).split()),
            )


def text(name: str, default: object) -> str:
    """A default as one would write it."""
    if name == "RETENTION":
        return f"`{conf.RETENTION}`"
    if name == "BACKOFF":
        return '`{"base": 5, "cap": 21600, "jitter": 1}`'
    return f"`{int(default) if isinstance(default, float) else default!r}`"


def page() -> str:
    """The whole page."""
    return HEAD + "".join(f"| `{name}` | {default} | {meaning} |\n" for name, default, meaning in rows())


if __name__ == "__main__":
    print(page(), end="")
