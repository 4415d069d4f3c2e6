"""Secrets in payloads, and in the texts that repeat them, never reach a page.

A value is masked when a key above it looks like a secret's name, or is one of the handler's ``sensitive`` names. The
masked values are then searched for in everything else that is shown of the job: errors, tracebacks, logs, other values.
No permission lifts this: whoever has to see a secret has the database.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

from .wording import visible

MASK = "••••••"

SHORTEST = 4
"""Secrets with fewer characters are masked in their place only: replaced everywhere they would garble the text."""

DEEPEST = 100
"""Levels of nesting that are shown, as many as enqueue() takes."""

LONGEST = 50_000
"""Characters of one text or document that are shown."""

NAMES = (
    "password", "passwd", "passphrase", "passcode", "pwd", "secret", "token", "apikey", "accesskey", "privatekey",
    "signingkey", "encryptionkey", "authorization", "credential", "cookie", "session", "csrf", "jwt", "bearer", "oauth",
    "signature", "connectionstring", "databaseurl", "cardnumber", "creditcard", "socialsecurity",
)  # fmt: skip
"""A key that holds one of these, whatever its case and punctuation, names a secret."""

EXACT = frozenset({"pass", "pw", "auth", "pin", "otp", "cvv", "cvc", "ssn", "dsn", "salt"})
"""A key that is one of these names a secret."""

# Secrets that a text tells by its own form: user information in URLs, HTTP credentials, name=value and "name": "value".
_IN_URL = re.compile(r"(?<=://)[^\s/@:]*:[^\s/@]+(?=@)")
_IN_HEADER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
_ASSIGNED = re.compile(
    r"""((?<![\w-])["']?[\w-]{0,40}
         (?:passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|credential|private[_-]?key)
         [\w-]{0,40}["']?(?:=|:[ ]?))
        ("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|[^\s"'&,;)\]}(\[]+)(?![\w.]*\()""",
    re.IGNORECASE | re.VERBOSE,
)


UNREADABLE = object()
"""A JSON document that is nested too deeply for Python to read."""


def parse(text: str | None) -> Any:
    """A JSON document; None for none, ``UNREADABLE`` for one that is nested too deeply."""
    try:
        return None if text is None else json.loads(text)
    except (RecursionError, ValueError):
        return UNREADABLE


class Masker:
    """Knows the secrets of one job, from its JSON documents, and takes them out of whatever is shown of it."""

    def __init__(self, documents: Iterable[Any], sensitive: Iterable[str] = ()) -> None:
        documents = list(documents)
        self._sensitive = frozenset(_plain(name) for name in sensitive)
        self._blind = UNREADABLE in documents  # then any text may hold a secret
        found = {form for document in documents for text in self._secrets(document, 0, False) for form in _forms(text)}
        longest_first = sorted(found, key=lambda text: (-len(text), text))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if found else None

    def text(self, text: str) -> str:
        """The text without secrets, cut at ``LONGEST`` characters, its unseen characters written as escapes."""
        if self._blind:
            return MASK if text else ""
        return visible(_cut(self._redacted(text)))

    def document(self, document: Any) -> str:
        """A JSON document, indented, without secrets."""
        text = json.dumps(self._masked(document, 0), indent=2, ensure_ascii=False)
        return visible(_cut(text))

    def _redacted(self, text: str) -> str:
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = _IN_URL.sub(MASK, text[: LONGEST + 1000])
        return _ASSIGNED.sub(lambda m: m[1] + MASK, _IN_HEADER.sub(lambda m: f"{m[1]} {MASK}", text))

    def _is_secret(self, key: str) -> bool:
        name = _plain(key)
        return name in EXACT or name in self._sensitive or any(part in name for part in NAMES)

    def _secrets(self, value: Any, depth: int, secret: bool) -> Iterator[str]:
        """Every scalar under a secret's key, as text."""
        if depth > DEEPEST:
            return
        if isinstance(value, dict):
            for key, item in value.items():
                yield from self._secrets(item, depth + 1, secret or self._is_secret(key))
        elif isinstance(value, list):
            for item in value:
                yield from self._secrets(item, depth + 1, secret)
        elif secret and value is not None and not isinstance(value, bool):
            yield str(value)

    def _masked(self, value: Any, depth: int) -> Any:
        if depth > DEEPEST:
            return "…"
        if isinstance(value, dict):
            return {
                self._redacted(key): MASK
                if self._is_secret(key) and item not in (None, "", [], {})
                else self._masked(item, depth + 1)
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [self._masked(item, depth + 1) for item in value]
        if isinstance(value, str):
            return self._redacted(value)
        # A number may be the very secret too (an account's number in an error and in a list).
        return (
            MASK if not isinstance(value, bool) and value is not None and self._redacted(str(value)) == MASK else value
        )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "\n…"


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())


def _forms(text: str) -> Iterator[str]:
    """How a secret may be written in a text: as it is, and as JSON, repr() and URLs escape it, line by line too."""
    for part in {text, text.strip(), *(text.splitlines() if len(text) > 16 else ())}:
        for form in (part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1], repr(part)[1:-1],
                     quote(part, safe=""), quote(part), quote_plus(part)):  # fmt: skip
            if len(form) >= SHORTEST:
                yield form
