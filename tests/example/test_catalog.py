"""The import of price lists: reading them, and the job."""

from __future__ import annotations

from decimal import Decimal

import pytest
from django.core.files.base import ContentFile
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from example_project.catalog import jobs
from example_project.catalog.jobs import import_products
from example_project.catalog.models import PriceList, Product
from example_project.catalog.pricelist import BadRow, PriceListError, Row, read
from pgjobs import Cancel, Fail, JobContext
from pgjobs.models import Job
from tests.example.conftest import Holder

HEADING = "sku,name,price,stock"
GOOD = f"{HEADING}\nA-1,Lamp,12.50,3\nA-2,Chair,80,0\n"
MIXED = f"{GOOD}A-3,Table,-1,2\n,Sofa,5,5\nA-1,Lamp again,1,1\nA-4,Bed,99.999,7\n"


def price_list(text: str | bytes) -> PriceList:
    data = text.encode() if isinstance(text, str) else text
    made = PriceList()
    made.file.save("list.csv", ContentFile(data))
    return made


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (",Lamp,1,1", "the SKU is missing"),
        ("x" * 41 + ",Lamp,1,1", "the SKU is longer than 40"),
        ("A-1,,1,1", "the name is missing"),
        ("A-1," + "x" * 201 + ",1,1", "the name is longer than 200"),
        ("A-1,Lamp,twelve,1", "price is 'twelve'"),
        ("A-1,Lamp,NaN,1", "price is 'NaN'"),
        ("A-1,Lamp,-0.01,1", "price is '-0.01'"),
        ("A-1,Lamp,100000000,1", "price is '100000000'"),
        ("A-1,Lamp,1,1.5", "stock is '1.5'"),
        ("A-1,Lamp,1,-1", "stock is '-1'"),
        ("A-1,Lamp,1,3000000000", "stock is '3000000000'"),
        ("A-1,Lamp", "stock is ''"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(line: str, reason: str) -> None:
    [bad] = read([HEADING + "\n", line + "\n"])
    assert isinstance(bad, BadRow)
    assert bad.line == 2
    assert reason in bad.reason


def test_cells_are_trimmed_and_other_columns_ignored() -> None:
    lines = ["name,colour,sku,stock,price\n", '"Lamp, tall",red, A-1 ,3,12.5\n']
    assert list(read(lines)) == [Row("A-1", "Lamp, tall", Decimal("12.50"), 3)]


@pytest.mark.parametrize("text", ["", "sku;name;price;stock\n", "PK\x03\x04"])
def test_what_has_not_the_columns_is_no_price_list(text: str) -> None:
    with pytest.raises(PriceListError, match="the heading has no column"):
        list(read(text.splitlines(keepends=True)))


@pytest.mark.django_db
def test_good_rows_are_imported_and_bad_ones_written_down(ctx: JobContext, holder: Holder) -> None:
    made = price_list(MIXED)
    assert import_products(ctx, price_list_id=made.pk) == {"imported": 3, "bad": 3}
    assert list(Product.objects.values_list("sku", "name", "price", "stock")) == [
        ("A-1", "Lamp", Decimal("12.50"), 3),
        ("A-2", "Chair", Decimal("80.00"), 0),
        ("A-4", "Bed", Decimal("100.00"), 7),
    ]
    made.refresh_from_db()
    assert (made.imported, made.bad, [row["line"] for row in made.bad_rows]) == (3, 3, [4, 5, 6])
    assert made.bad_rows[2]["reason"] == "SKU A-1 is in line 2 already"
    assert holder.progress == [{"done": 6, "total": 6, "text": "3 products imported, 3 bad rows"}]


@pytest.mark.django_db
def test_run_twice_it_imports_once(ctx: JobContext) -> None:
    made = price_list(GOOD)
    first = import_products(ctx, price_list_id=made.pk)
    products = list(Product.objects.values_list("pk", "sku", "name", "price", "stock"))
    assert import_products(ctx, price_list_id=made.pk) == first
    assert list(Product.objects.values_list("pk", "sku", "name", "price", "stock")) == products


@pytest.mark.django_db
def test_what_a_dead_run_left_is_completed(ctx: JobContext, holder: Holder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "BATCH", 1)
    made = price_list(GOOD)
    holder.say_progress = lambda progress: setattr(holder, "cancel", True)  # type: ignore[method-assign]
    with pytest.raises(Cancel, match="after 1 rows"):
        import_products(ctx, price_list_id=made.pk)
    assert Product.objects.count() == 1
    holder.cancel, holder.say_progress = False, lambda progress: None  # type: ignore[method-assign]
    assert import_products(ctx, price_list_id=made.pk) == {"imported": 2, "bad": 0}
    assert Product.objects.count() == 2


@pytest.mark.django_db
def test_a_later_list_renews_the_products(ctx: JobContext) -> None:
    import_products(ctx, price_list_id=price_list(GOOD).pk)
    import_products(ctx, price_list_id=price_list(GOOD.replace("12.50", "13")).pk)
    assert Product.objects.get(sku="A-1").price == 13
    assert Product.objects.count() == 2


@pytest.mark.django_db
@pytest.mark.parametrize("text", [b"", b"\xff\xfe\x00", b"a,b\n1,2\n", GOOD.encode() + b"A-9,\xe9,1,1\n"])
def test_a_file_that_is_no_price_list_never_will_be(ctx: JobContext, text: bytes) -> None:
    with pytest.raises(Fail, match="is not a price list"):
        import_products(ctx, price_list_id=price_list(text).pk)


@pytest.mark.django_db
def test_only_the_first_bad_rows_are_kept(ctx: JobContext) -> None:
    made = price_list(HEADING + "\n" + "A-1,Lamp,no,1\n" * (jobs.SHOWN + 20))
    assert import_products(ctx, price_list_id=made.pk) == {"imported": 0, "bad": jobs.SHOWN + 20}
    made.refresh_from_db()
    assert len(made.bad_rows) == jobs.SHOWN


@pytest.mark.django_db
def test_an_upload_is_stored_with_its_job(admin_client: Client) -> None:
    file = SimpleUploadedFile("list.csv", GOOD.encode(), "text/csv")
    page = admin_client.post(reverse("catalog:price_lists"), {"file": file}, follow=True).content.decode()
    made, job = PriceList.objects.get(), Job.objects.get()
    assert (job.kind, job.payload, made.job_id) == ("import_products", {"price_list_id": made.pk}, job.pk)
    assert "the import runs in the background" in page
    assert "Pending" in page


@pytest.mark.django_db
def test_when_the_transaction_rolls_back_there_is_no_job(admin_client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: PriceList, *args: object, update_fields: object = None, **kwargs: object) -> None:
        if update_fields:
            assert Job.objects.exists()
            raise RuntimeError("the lights went out")
        save(self, *args, **kwargs)

    save = PriceList.save
    monkeypatch.setattr(PriceList, "save", refuse)
    with pytest.raises(RuntimeError, match="lights"):
        admin_client.post(reverse("catalog:price_lists"), {"file": SimpleUploadedFile("list.csv", GOOD.encode())})
    assert not PriceList.objects.exists()
    assert not Job.objects.exists()


@pytest.mark.django_db
def test_strangers_do_not_upload(client: Client) -> None:
    response = client.post(reverse("catalog:price_lists"), {"file": SimpleUploadedFile("list.csv", b"")})
    assert response.headers["Location"].startswith(reverse("admin:login"))
    assert not PriceList.objects.exists()
