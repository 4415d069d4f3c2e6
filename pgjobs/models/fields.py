"""Small pieces that the models share."""

from __future__ import annotations

import json
from typing import Any

from django.db import models
from django.db.models import F, Func, Value
from django.db.models.lookups import Exact, GreaterThanOrEqual, LessThanOrEqual


class Array(models.Field):  # type: ignore[type-arg]  # not subscriptable at run time
    """A one-dimensional array of ``item`` (text or bigint), as a list; empty unless given.

    Not ``django.contrib.postgres``'s: that app would have to be in every user's INSTALLED_APPS.
    """

    def __init__(self, item: str, **options: Any) -> None:
        self.item = item
        options.setdefault("blank", True)
        options.setdefault("db_default", Value("{}"))
        super().__init__(**options)

    def db_type(self, connection: Any) -> str:
        return f"{self.item}[]"

    def get_internal_type(self) -> str:
        return "Array"

    def deconstruct(self) -> Any:
        name, path, args, options = super().deconstruct()
        return name, path, [self.item, *args], options

    def value_to_string(self, obj: Any) -> str:
        return json.dumps(self.value_from_object(obj))

    def to_python(self, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value


class Document(models.JSONField):
    """A JSON document. One that Python cannot read (nested too deeply, a number of 5,000 digits) comes up as its text: it
    must not spoil a list of others."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        try:
            return super().from_db_value(value, expression, connection)
        except (ValueError, RecursionError):
            return value

    def deconstruct(self) -> Any:
        name, _path, args, options = super().deconstruct()
        return name, "django.db.models.JSONField", args, options


def texts(**options: Any) -> Array:
    """A ``text[]`` that is empty unless given."""
    return Array("text", **options)


def numbers(**options: Any) -> Array:
    """A ``bigint[]`` that is empty unless given."""
    return Array("bigint", **options)


def bytes_between(column: str, least: int, most: int, name: str) -> models.CheckConstraint:
    """``column`` has ``least`` to ``most`` bytes (NULL passes)."""
    length = Func(F(column), function="octet_length", output_field=models.IntegerField())
    return models.CheckConstraint(
        condition=models.Q(GreaterThanOrEqual(length, least)) & models.Q(LessThanOrEqual(length, most)), name=name
    )


def is_object(column: str, name: str) -> models.CheckConstraint:
    """``column`` is a JSON object."""
    kind = Func(F(column), function="jsonb_typeof", output_field=models.TextField())
    return models.CheckConstraint(condition=models.Q(Exact(kind, Value("object"))), name=name)
