"""F128: secrets reach no page, whoever looks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client

from pgjobs import job as job_decorator
from pgjobs.admin.masking import MASK, Masker
from pgjobs.api.registry import registry
from pgjobs.models import Attempt, Job
from tests.factories import JobFactory

from .conftest import LIST, page

PAYLOAD = {
    "password": "s3cr3t",
    "nested": {"api_key": "an0ther", "list": [{"Authorization": "th1rd-one"}]},
    "order_id": 17,
}
TEXT = "could not log in with s3cr3t and an0ther (th1rd-one)"


def leaky() -> Job:
    """A dead letter whose errors repeat what its payload holds."""
    job: Job = JobFactory(
        dead=True,
        payload=PAYLOAD,
        last_error=TEXT,
        error_class="LoginError",
        dedupe_key="for-s3cr3t",
        meta={"session": "cook1e-value"},
        progress={"text": f"trying {TEXT}"},
    )
    Attempt.objects.filter(job_id=job.pk).update(
        error=TEXT, error_class="LoginError", traceback=f"Traceback:\n  {TEXT} cook1e-value", log=f"{TEXT} cook1e-value"
    )
    return job


SECRETS = ("s3cr3t", "an0ther", "th1rd-one", "cook1e-value")


@pytest.mark.django_db
def test_no_page_tells_a_secret(ann: Client, staff: Callable[..., Client]) -> None:
    job = leaky()
    for client in (ann, staff("view_job"), staff("view_job", "view_payload")):
        for address in (page(job), LIST, LIST + "?status=dead_letters"):
            text = client.get(address).content.decode()
            assert f"could not log in with {MASK} and {MASK} ({MASK})" in text
            assert not [secret for secret in SECRETS if secret in text]


@pytest.mark.django_db
def test_payload_result_and_traceback_need_a_permission(staff: Callable[..., Client]) -> None:
    job = leaky()
    Job.objects.filter(pk=job.pk).update(result={"r": "in-result"}, meta={"m": "in-meta"}, payload={"p": "in-payload"})
    Attempt.objects.filter(job_id=job.pk).update(error="first line\nin-error", traceback="in-traceback", log="in-log")
    inside = ("in-result", "in-meta", "in-payload", "in-error", "in-traceback", "in-log")
    text = staff("view_job").get(page(job)).content.decode()
    assert not [word for word in inside if word in text]
    assert "first line" in text
    assert "LoginError" in text
    text = staff("view_job", "view_payload").get(page(job)).content.decode()
    assert not [word for word in inside if word not in text]


@pytest.fixture
def careful() -> Iterator[str]:
    @job_decorator(kind="careful", sensitive=("passport-number",))
    def careful(passport_number: str) -> None: ...

    yield "careful"
    registry.remove(careful.handler)


@pytest.mark.django_db
def test_a_handlers_own_names(ann: Client, careful: str) -> None:
    job = JobFactory(kind=careful, payload={"passport_number": "XK99"}, dead=True, last_error="XK99 has expired")
    for address in (page(job), LIST):
        text = ann.get(address).content.decode()
        assert "XK99" not in text
        assert "has expired" in text


@pytest.mark.django_db
def test_the_list_shows_no_error_that_it_cannot_check(ann: Client) -> None:
    """The payload is too large to be read for a list: then the class has to do."""
    filler = "".join(chr(33 + n * 7919 % 90) for n in range(20_000))
    JobFactory(
        payload={"password": "hunter2", "filler": filler}, dead=True, last_error="hunter2", error_class="a.LoginError"
    )
    text = ann.get(LIST).content.decode()
    assert "LoginError" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "key",
    ["password", "PASSWORD", "db-password", "newPasswd", "api_key", "apiKey", "X-Api-Key", "token", "access_token", "secret",
     "client_secret", "Authorization", "credentials", "private_key", "cookie", "Set-Cookie", "sessionid", "pin", "auth"],
)  # fmt: skip
def test_names_of_secrets(key: str) -> None:
    masker = Masker([{key: "value-1"}])
    assert "value-1" not in masker.document({"a": [{key: "value-1"}], "b": "with value-1 in it"})
    assert masker.text("value-1!") == f"{MASK}!"


@pytest.mark.parametrize("key", ["order_id", "passenger", "keyboard", "author", "compass", "spinning", "key", "name"])
def test_names_that_are_none(key: str) -> None:
    assert "value-1" in Masker([{key: "value-1"}]).document({key: "value-1"})


@pytest.mark.parametrize(
    "secret", ['qu"ote', "back\\slash", "größe", "with space&more", "a/b?c=d", "line one of it\nline two", 123456]
)
def test_other_ways_to_write_a_secret(secret: Any) -> None:
    import json
    from urllib.parse import quote, quote_plus

    masker = Masker([{"token": secret}])
    text = str(secret)
    for form in (text, repr(text), json.dumps(text), quote(text), quote(text, safe=""), quote_plus(text)):
        shown = masker.text(f"<{form}>")
        assert text not in shown
        assert MASK in shown
    if "\n" in text:
        assert "line two" not in masker.text("  | line two of it")


def test_short_and_empty_secrets_do_not_garble_the_rest() -> None:
    masker = Masker([{"token": "1", "password": "", "secret": None, "pin": True}])
    assert masker.text("attempt 1 of 10") == "attempt 1 of 10"
    shown = masker.document({"token": "1", "password": "", "secret": None})
    assert f'"token": "{MASK}"' in shown
    assert '"password": ""' in shown  # that it is empty is no secret, and often the cause


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgres://ann:hunter2@db:5432/x", f"postgres://{MASK}@db:5432/x"),
        ("Authorization: Bearer eyJhbGciOi.J9", f"Authorization: Bearer {MASK}"),
        ("?api_key=sk_live_1&page=2", f"?api_key={MASK}&page=2"),
        ('{"password": "hunter2", "n": 1}', f'{{"password": {MASK}, "n": 1}}'),
        ("password='hun ter2' port=5432", f"password={MASK} port=5432"),
        ("    token = fetch_token(user)", "    token = fetch_token(user)"),
        ("    login(token=fetch_token(user))", "    login(token=fetch_token(user))"),
        ("https://example.com/a@b", "https://example.com/a@b"),
    ],
)
def test_secrets_that_a_text_tells_by_its_form(text: str, shown: str) -> None:
    assert Masker([]).text(text) == shown


def test_hostile_texts_take_no_time() -> None:
    start = time.perf_counter()
    masker = Masker([{"token": "x" * 5000}])
    for text in ("a" * 200_000, "password" * 20_000, "://" * 60_000, "x" * 4_999 + "y" * 100_000, "token='" * 20_000):
        masker.text(text)
    assert time.perf_counter() - start < 5
