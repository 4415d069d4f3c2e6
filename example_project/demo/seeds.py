"""The made-up facts: customers, a price list, an administrator. All that is left of a demo, and safe to add to."""

from __future__ import annotations

import csv
import io
import random
import secrets
from collections.abc import Iterator

from django.contrib.auth.models import User

from example_project.customers.models import Customer

ROWS = 20_000
BAD_ROWS = {
    4_711: {"price": "-3.00"},
    9_002: {"sku": ""},
    13_337: {"price": "twelve"},
    19_999: {"stock": "1.5"},
}
"""What is wrong with which row of the price list, counted from 1."""

READERS = 2_000
TRADES = ("Bakery", "Bikes", "Books", "Cafe", "Garden", "Hardware", "Hotel", "Optics", "Pharmacy", "Toys")
PLACES = ("Bergen", "Delft", "Ghent", "Graz", "Kyiv", "Lyon", "Porto", "Tartu", "Turin", "Vilnius")


def administrator() -> tuple[User, str | None]:
    """A superuser, and the password if the account is new: it is stored nowhere, and said once."""
    if user := User.objects.filter(is_superuser=True, is_active=True).order_by("pk").first():
        return user, None
    password = secrets.token_urlsafe(9)
    return User.objects.create_superuser("admin", "admin@shop.example", password), password


def readers() -> int:
    """Make sure that 2,000 customers want the digest; how many do."""
    there = Customer.objects.filter(wants_digest=True).count()
    Customer.objects.bulk_create(
        Customer(
            name=f"{PLACES[n // 10 % 10]} {TRADES[n % 10]} {n}",
            email=f"c{n}@customers.example",
            city=PLACES[n // 10 % 10],
        )
        for n in range(there, READERS)
    )
    return max(there, READERS)


def price_list() -> bytes:
    """20,000 rows of CSV, four of them bad. The SKUs are always the same: a second import renews the products."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, ["sku", "name", "price", "stock"])
    writer.writeheader()
    writer.writerows(_rows())
    return text.getvalue().encode()


def _rows() -> Iterator[dict[str, str]]:
    for n in range(1, ROWS + 1):
        price, stock = random.uniform(1, 500), random.randint(0, 900)
        row = {
            "sku": f"DEMO-{n:05}",
            "name": f"{TRADES[n % 10]} article {n}",
            "price": f"{price:.2f}",
            "stock": str(stock),
        }
        yield row | BAD_ROWS.get(n, {})
