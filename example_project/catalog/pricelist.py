"""Reading a price list: text in, products and complaints out. No database, no job: tested by itself."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

COLUMNS = ("sku", "name", "price", "stock")
MOST = Decimal("99999999.99")  # what Product.price can hold
LARGEST_STOCK = 2**31 - 1


class PriceListError(Exception):
    """The file as a whole is none; the message says why. No second try will read it."""


@dataclass(frozen=True, slots=True)
class Row:
    """A good line."""

    sku: str
    name: str
    price: Decimal
    stock: int


@dataclass(frozen=True, slots=True)
class BadRow:
    """A line that cannot be imported: its number in the file, as an editor shows it, and the reason."""

    line: int
    reason: str


def read(lines: Iterable[str]) -> Iterator[Row | BadRow]:
    """Each line of a CSV text after its heading, as a Row or a BadRow. Raises PriceListError."""
    reader = csv.DictReader(lines)
    try:
        if missing := [name for name in COLUMNS if name not in (reader.fieldnames or ())]:
            raise PriceListError(f"the heading has no column {', '.join(missing)}; it needs {', '.join(COLUMNS)}")
        seen: dict[str, int] = {}
        for fields in reader:
            try:
                row = _row(fields)
                if first := seen.get(row.sku):
                    raise ValueError(f"SKU {row.sku} is in line {first} already")
            except ValueError as reason:
                yield BadRow(reader.line_num, str(reason))
            else:
                seen[row.sku] = reader.line_num
                yield row
    except UnicodeDecodeError as error:
        raise PriceListError(f"it is not UTF-8 text ({error.reason} at byte {error.start})") from error
    except csv.Error as error:
        raise PriceListError(f"line {reader.line_num}: {error}") from error


def _row(fields: dict[str, str | None]) -> Row:
    """Check one line; raises ValueError with a reason that its author can act on."""
    sku, name, price, stock = (_clean(fields[column]) for column in COLUMNS)
    if not sku or len(sku) > 40:
        raise ValueError("the SKU is missing" if not sku else "the SKU is longer than 40 characters")
    if not name or len(name) > 200:
        raise ValueError("the name is missing" if not name else "the name is longer than 200 characters")
    if not stock.isdecimal() or int(stock) > LARGEST_STOCK:
        raise ValueError(f"stock is {stock!r}; it has to be a whole number of at least 0")
    return Row(sku, name, _price(price), int(stock))


def _price(text: str) -> Decimal:
    try:
        price = Decimal(text).quantize(Decimal("0.01"))
        if 0 <= price <= MOST:  # which raises InvalidOperation for NaN
            return price
    except InvalidOperation:
        raise ValueError(f"price is {text!r}; it has to be a number such as 12.50") from None
    raise ValueError(f"price is {text!r}; it has to be from 0 to {MOST}")


def _clean(value: str | None) -> str:
    """A cell without the blanks around it; PostgreSQL cannot store NUL, which broken exports do contain."""
    return (value or "").replace("\0", "").strip()
