"""Small pieces that the models share."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, Value
from django.db.models.lookups import Exact, GreaterThanOrEqual, LessThanOrEqual


def texts(**options: Any) -> ArrayField[Any, Any]:
    """A ``text[]`` that is empty unless given."""
    return ArrayField(
        models.TextField(), blank=True, db_default=Value([], output_field=ArrayField(models.TextField())), **options
    )


def numbers(**options: Any) -> ArrayField[Any, Any]:
    """A ``bigint[]`` that is empty unless given."""
    return ArrayField(
        models.BigIntegerField(),
        blank=True,
        db_default=Value([], output_field=ArrayField(models.BigIntegerField())),
        **options,
    )


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
