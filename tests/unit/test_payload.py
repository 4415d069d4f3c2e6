"""JSON on its way in and out."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import uuid
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from typing import Any

import pytest
from django.http import QueryDict
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe

from pgjobs import payload
from pgjobs.exceptions import EnqueueError, PayloadTooLarge, PayloadTypeError
from tests.testapp.models import Note
from tests.testapp.script import ODD_VALUES

MIB = 1024 * 1024


class Colour(enum.Enum):
    RED = "red"


class Text(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


Point = namedtuple("Point", "x y")


# In ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "back"),
    [
        ({}, {}),
        ({"a": None, "b": True, "c": [1, 1.5, -0.0, "ü😀"]}, None),
        ({"big": 2**70, "small": -(2**70), "tiny": 5e-324}, None),  # F122
        ({"text": "\\u0000"}, None),  # the letters, not the character
        ({"text": "\\\\u0000 \\"}, None),
        ({"": {"": ""}}, None),
        ({"t": (1, 2)}, {"t": [1, 2]}),
        ({"e": Text.A, "n": Number.ONE, "s": mark_safe("<b>")}, {"e": "a", "n": 1, "s": "<b>"}),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(list, a=[1]), {"a": [1]}),
    ],
)
def test_what_json_holds_comes_back(value: Any, back: Any) -> None:
    assert json.loads(payload.dumps(value, MIB)) == (value if back is None else back)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (dt.datetime(2026, 1, 1, tzinfo=dt.UTC), "Pass value.isoformat()"),
        (dt.date(2026, 1, 1), "Pass value.isoformat()"),
        (dt.time(1), "Pass value.isoformat()"),
        (dt.timedelta(1), "Pass value.total_seconds()"),
        (uuid.UUID(int=1), "Pass str(value)"),
        (decimal.Decimal("1.10"), "Pass str(value)"),
        (lazystr("lazy"), "Pass str(value)"),
        ({1, 2}, "Pass sorted(value)"),
        (frozenset(), "Pass sorted(value)"),
        (b"bytes", "Pass text"),
        (bytearray(b"x"), "Pass text"),
        (Colour.RED, "Pass value.value"),
        (Note(pk=1), "Pass its primary key"),
        (Point(1, 2), "Pass value._asdict()"),
        (UserDict(a=1), "Pass dict(value)"),
        (QueryDict("a=1&a=2"), "Pass dict(value)"),
        (object(), "Pass text, numbers"),
        (iter([1]), "Pass text, numbers"),
        (1j, "Pass text, numbers"),
        (len, "Pass text, numbers"),
    ],
)
@pytest.mark.parametrize(
    ("wrap", "path"),
    [
        (lambda v: {"a": v}, "payload.a"),
        (lambda v: {"a": 1, "b": [0, {"c d": v}]}, "payload.b[1].c d"),
        (lambda v: {"t": ("x", v)}, "payload.t[1]"),
    ],
)
def test_types_that_json_lacks_are_refused_with_path_and_hint(value: Any, hint: str, wrap: Any, path: str) -> None:
    """F121"""
    with pytest.raises(PayloadTypeError) as caught:
        payload.dumps(wrap(value), MIB)
    assert str(caught.value).startswith(f"{path} is of type {type(value).__name__}")
    assert hint in str(caught.value)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("key", [1, None, 1.5, True, (1, 2), b"a", Colour.RED])
def test_keys_that_are_no_text_are_refused(key: Any) -> None:
    with pytest.raises(PayloadTypeError, match=r"^payload\.a has the key .*JSON keys are text"):
        payload.dumps({"a": {key: 1}}, MIB)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": "x\x00y"}, r"^payload\.a holds a NUL"),
        ({"x\x00": 1}, r"^payload: the key 'x\\x00' holds a NUL"),
        ({"n": 1, "a": {"b": ["ok", 2, {"c": "\x00"}]}}, r"^payload\.a\.b\[2\]\.c holds a NUL"),
        ({"f": 1.5, "a": "\\u0000 \x00"}, r"^payload\.a holds a NUL"),
        ({"n": 1, "a": "\ud800"}, r"^payload\.a holds a lone surrogate at position 0"),
        ({"n": 1, "ok\udfff": 1}, r"the key 'ok\\udfff' holds a lone surrogate at position 2"),
        ({"n": 1, "a": float("nan")}, r"^payload\.a is nan"),
        ({"n": [1, float("inf")]}, r"^payload\.n\[1\] is inf"),
        ({"n": -float("inf")}, r"^payload\.n is -inf"),
        ({"n": 1, "b": True, "big": 10**5000}, r"^payload\.big is a whole number too long"),
    ],
)
def test_what_postgresql_refuses_is_refused_with_its_path(value: Any, message: str) -> None:
    """F117, F120"""
    with pytest.raises(EnqueueError, match=message) as caught:
        payload.dumps(value, MIB)
    assert not isinstance(caught.value, TypeError)


def test_what_holds_itself_or_is_nested_too_deeply_is_refused() -> None:
    value: dict[str, Any] = {}
    value["self"] = value
    with pytest.raises(EnqueueError, match="nested deeper than 100 levels"):
        payload.dumps(value, MIB)
    deep: Any = 1
    for _ in range(99):
        deep = [deep]
    assert payload.dumps({"a": deep}, MIB)
    with pytest.raises(EnqueueError, match="nested deeper"):
        payload.dumps({"a": [[[deep]]]}, MIB)


@pytest.mark.parametrize("letter", ["x", "ü", "😀", '"', "\n"])
def test_the_limit_is_of_bytes(letter: str) -> None:
    """F123"""
    size = len(payload.dumps({"a": letter * 10}, MIB).encode())
    assert payload.dumps({"a": letter * 10}, size)
    with pytest.raises(PayloadTooLarge, match=rf"^payload has {size} bytes of JSON; the limit is {size - 1} "):
        payload.dumps({"a": letter * 10}, size - 1)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "queue has to be text, not NoneType"),
        (5, "queue has to be text, not int"),
        (b"q", "queue has to be text, not bytes"),
        ("", "queue has to have 1 to 255 bytes; it has 0"),
        ("x" * 256, "queue has to have 1 to 255 bytes; it has 256"),
        ("ü" * 128, "it has 256"),
        ("a\x00", "queue holds a NUL"),
        ("\ud800", "queue holds a lone surrogate"),
    ],
)
def test_names_are_checked(value: Any, message: str) -> None:
    with pytest.raises(EnqueueError, match=message):
        payload.check_text(value, "queue", 255)


@pytest.mark.parametrize("value", ["x", "x" * 255, "ü" * 127, Text.A, mark_safe("q"), " ", "\\u0000"])
def test_names_come_back_as_plain_text(value: str) -> None:
    found = payload.check_text(value, "queue", 255)
    assert found == value
    assert type(found) is str


# Out -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0, False, "", [], {}, 1.5, {"a": [None]}, "ü", "\\u0000"])
def test_a_result_is_stored(value: Any) -> None:
    """F108"""
    text, note = payload.dumps_result(value, MIB)
    assert text is not None
    assert (json.loads(text), note) == (value, None)


def test_nothing_is_no_result() -> None:
    assert payload.dumps_result(None, MIB) == (None, None)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ("a\x00b", "a\ufffdb"),
        ({"a\x00": ["\ud800", ("\udfff",)]}, {"a\ufffd": ["\ufffd", ["\ufffd"]]}),
        ({"a\\u0000": "\x00"}, {"a\\u0000": "\ufffd"}),
        ([float("nan"), float("inf"), -float("inf"), 1.5], ["nan", "inf", "-inf", 1.5]),
        ({"a": float("nan"), "b": "\x00"}, {"a": "nan", "b": "\ufffd"}),
        ({1: "\x00"}, {"1": "\ufffd"}),
    ],
)
def test_a_result_is_mended_on_the_object_keys_too(value: Any, stored: Any) -> None:
    """F117: the letters ``\\u0000`` stay."""
    text, note = payload.dumps_result(value, MIB)
    assert text is not None
    assert (json.loads(text), note) == (stored, None)
    text.encode()


@pytest.mark.parametrize("name", sorted(set(ODD_VALUES) - {"nul", "surrogate", "nan", "falsy"}))
def test_a_result_that_json_cannot_hold_is_left_out_with_a_note(name: str) -> None:
    """F124: the effect happened, so the job is done."""
    text, note = payload.dumps_result(ODD_VALUES[name](), MIB)
    assert text is None
    assert note is not None
    assert note.startswith("result not stored: ")


def test_a_result_whose_parts_raise_anything_is_left_out() -> None:
    class Evil(dict):  # type: ignore[type-arg]
        def items(self) -> Any:
            raise SystemExit

    text, note = payload.dumps_result(Evil(a=1), MIB)
    assert text is None
    assert note == "result not stored: Evil cannot be written as JSON (SystemExit)"


def test_mend() -> None:
    assert payload.mend("plain") == "plain"
    assert payload.mend("a\x00b\ud800c\udfffü😀") == "a\ufffdb\ufffdc\ufffdü😀"
