"""The CRM's stand-in behaves the same from the site and from its own server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPConnection

import pytest
from django.test import Client

from example_project.crm import views
from example_project.crm.server import serving
from example_project.crm.service import FlakyCrm

Put = Callable[[str, str, str], tuple[int, str]]


@pytest.fixture(params=["site", "server"])
def put(request: pytest.FixtureRequest, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """PUT a body to a path, with an idempotency key; status and text of the answer."""
    crm = FlakyCrm()
    if request.param == "site":
        monkeypatch.setattr(views, "crm", crm)

        def put_to_site(path: str, body: str, key: str) -> tuple[int, str]:
            answer = client.put(path, body, "application/json", headers={"Idempotency-Key": key})
            return answer.status_code, answer.content.decode()

        yield put_to_site
        return
    with serving(crm) as url:

        def put_to_server(path: str, body: str, key: str) -> tuple[int, str]:
            with closing(HTTPConnection(url.split("/")[2])) as connection:
                connection.request("PUT", path, body, {"Idempotency-Key": key})
                answer = connection.getresponse()
                return answer.status, answer.read().decode()

        yield put_to_server


def test_it_fails_twice_for_each_customer_and_then_works(put: Put) -> None:
    body = json.dumps({"name": "Lamps"})
    for customer in (1, 2):
        answers = [put(f"/crm/customers/{customer}/", body, f"{customer}-{n}")[0] for n in range(4)]
        assert answers == [503, 503, 200, 200]


def test_it_knows_a_key_again(put: Put) -> None:
    answers = [put("/crm/customers/1/", json.dumps({"name": name}), "k") for name in ("a", "b", "c", "d'e")]
    assert answers == [(503, "down for maintenance, please come back later")] * 2 + [(200, "stored")] * 2


def test_an_apostrophe_is_too_much_for_it(put: Put) -> None:
    assert put("/crm/customers/1/", json.dumps({"name": "O'Hara"}), "k")[0] == 500


@pytest.mark.parametrize("body", ["", "[]", "{}", "1"])
def test_what_is_no_customer_is_refused(put: Put, body: str) -> None:
    assert put("/crm/customers/1/", body, "k")[0] == 400
