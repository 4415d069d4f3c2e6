"""JSON on its way in (refused, with the path of what is wrong) and on its way out (mended, so that it always fits).

PostgreSQL's jsonb holds what JSON holds, less NUL characters, lone surrogates and NaN/Infinity.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

from django.utils.datastructures import MultiValueDict
from django.utils.functional import Promise

from .exceptions import EnqueueError, PayloadTooLarge, PayloadTypeError

NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
"""A NUL as json.dumps writes it: the escape after an even number of backslashes."""

DEEPEST = 100
"""Levels of nesting that a payload may have."""

UNREADABLE = "payload cannot be read: it is nested too deeply, or holds a number with thousands of digits."

PLAIN = frozenset({str, int, float, bool, type(None)})
"""Types of values that are as they are."""

_encode = json.JSONEncoder(allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode

MENDED = str.maketrans({"\x00": "\ufffd"} | {chr(c): "\ufffd" for c in range(0xD800, 0xE000)})


def dumps(payload: object, limit: int, name: str = "payload") -> str:
    """The JSON text of a payload that PostgreSQL will take as it is.

    The quick way is to let json do the work; only when it fails is the value walked, to name the path of the fault.
    Raises PayloadTypeError, PayloadTooLarge or EnqueueError.
    """
    try:
        if type(payload) is not dict or not all(type(k) is str and type(v) in PLAIN for k, v in payload.items()):
            _refuse_types(payload, name, 0)
        text = _encode(payload)
        size = len(text) if text.isascii() else len(text.encode())
        if "\\u0000" in text and NUL.search(text):
            raise ValueError
    except EnqueueError:
        raise
    except (ValueError, TypeError, RecursionError):
        _explain(payload, name, 0)
        raise EnqueueError(f"{name} cannot be stored as JSON.") from None
    if size > limit:
        raise PayloadTooLarge(
            f"{name} has {size:,} bytes of JSON; the limit is {limit:,} (PGJOBS['MAX_PAYLOAD_BYTES']). "
            "Store the data elsewhere and pass its key."
        )
    return text


def loads(text: str) -> dict[str, Any]:
    """A stored payload. Raises EnqueueError for one that PostgreSQL holds and Python cannot read."""
    try:
        payload: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError):
        raise EnqueueError(UNREADABLE) from None
    return payload


def _refuse_types(value: Any, path: str, depth: int) -> None:
    """Refuse what JSON lacks, and what json.dumps would change without a word (int keys, named tuples)."""
    kind = type(value)
    if kind is str or kind is int or value is None or isinstance(value, (str, int, float)):
        return  # subclasses too: a StrEnum is its text, a bool is true or false
    if depth > DEEPEST:
        raise EnqueueError(f"{path[:200]} is nested deeper than {DEEPEST} levels (does it hold itself?).")
    if isinstance(value, dict) and not isinstance(value, MultiValueDict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise PayloadTypeError(
                    f"{path} has the key {key!r} of type {type(key).__name__}; JSON keys are text. Pass str(key)."
                )
            _refuse_types(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        for n, item in enumerate(value):
            _refuse_types(item, f"{path}[{n}]", depth + 1)
    else:
        raise PayloadTypeError(f"{path} is of type {kind.__name__}, which JSON does not have. {_hint(value)}")


def _hint(value: object) -> str:
    """What to pass instead."""
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return "Pass its primary key (obj.pk) and load it in the handler."
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return "Pass value.isoformat()."
    if isinstance(value, dt.timedelta):
        return "Pass value.total_seconds()."
    if isinstance(value, (uuid.UUID, decimal.Decimal, Promise)):
        return "Pass str(value)."
    if isinstance(value, enum.Enum):
        return "Pass value.value."
    if isinstance(value, (set, frozenset)):
        return "Pass sorted(value)."
    if isinstance(value, (bytes, bytearray, memoryview)):
        return "Pass text, for example base64."
    if isinstance(value, tuple):
        return "Pass value._asdict()."
    if isinstance(value, Mapping):
        return "Pass dict(value)."
    return "Pass text, numbers, booleans, None, lists and dicts."


def _explain(value: object, path: str, depth: int) -> None:
    """Raise the error that names the path of the first value that PostgreSQL would not take."""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        raise EnqueueError(f"{path} is {value!r}, which JSON does not have. Pass None or text.")
    if isinstance(value, str):
        _explain_text(value, path)
    elif isinstance(value, dict):
        for key, item in value.items():
            _explain_text(key, f"{path}: the key {key!r}")
            _explain(item, f"{path}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for n, item in enumerate(value):
            _explain(item, f"{path}[{n}]", depth + 1)
    elif isinstance(value, int):
        try:
            int.__repr__(value)
        except ValueError:  # more digits than sys.get_int_max_str_digits()
            raise EnqueueError(f"{path} is a whole number too long to be written as text.") from None


def _explain_text(value: str, path: str) -> None:
    if "\x00" in value:
        raise EnqueueError(f"{path} holds a NUL character (\\x00), which PostgreSQL cannot store. Remove it.")
    try:
        value.encode()
    except UnicodeEncodeError as e:
        raise EnqueueError(
            f"{path} holds a lone surrogate at position {e.start}, which is no text. Decode the input properly."
        ) from None


def check_text(value: object, name: str, longest: int) -> str:
    """A text of 1 to ``longest`` bytes that PostgreSQL can store; raises EnqueueError that names the argument."""
    if type(value) is not str:
        if not isinstance(value, str):
            raise EnqueueError(f"{name} has to be text, not {type(value).__name__}.")
        value = str.__str__(value)
    _explain_text(value, name)
    if not 1 <= len(value.encode()) <= longest:
        raise EnqueueError(f"{name} has to have 1 to {longest:,} bytes; it has {len(value.encode()):,}.")
    return value


def mend(text: str) -> str:
    """The text with what PostgreSQL cannot store replaced by U+FFFD."""
    return text.translate(MENDED) if not text.isascii() or "\x00" in text else text


def dumps_result(value: object, limit: int) -> tuple[str | None, str | None]:
    """The JSON of a handler's result, and a note when it could not be stored whole. Never raises.

    NULs, lone surrogates, and NaN are mended; what JSON cannot hold, or what is too large, is left out: the job is done
    all the same, and the note says so.
    """
    if value is None:
        return None, None
    try:
        try:
            text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
            text.encode()
            clean = "\\u0000" not in text
        except (UnicodeEncodeError, ValueError):
            clean = False
        if not clean:
            text = json.dumps(_mended(value, 0), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except BaseException as e:  # noqa: BLE001 - whatever the value does when it is written
        return None, f"result not stored: {type(value).__name__} cannot be written as JSON ({type(e).__name__})"
    if size > limit:
        return None, f"result not stored: {size:,} bytes of JSON, the limit is {limit:,}"
    return text, None


def _mended(value: Any, depth: int) -> Any:
    if depth > DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        return mend(value)
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)
    if isinstance(value, dict):
        return {mend(k) if isinstance(k, str) else k: _mended(v, depth + 1) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mended(v, depth + 1) for v in value]
    return value
