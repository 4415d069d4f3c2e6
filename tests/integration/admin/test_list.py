"""The list of jobs: what is shown, filtered, searched and counted."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from pgjobs.admin import listing
from pgjobs.admin.listing import Count
from pgjobs.store import listing as lists
from tests.factories import TRAITS, JobFactory, PauseFactory, WorkerFactory

from .conftest import LIST, listed

pytestmark = pytest.mark.django_db


def test_every_state_is_listed_the_newest_first(ann: Client) -> None:
    jobs = [JobFactory(), *(JobFactory(**{trait: True}) for trait in TRAITS)]
    response = ann.get(LIST)
    assert response.status_code == 200
    assert listed(response) == [job.pk for job in reversed(jobs)]
    assert str(response.context["cl"].result_count) == str(len(jobs))


def test_a_row_says_what_matters(ann: Client) -> None:
    JobFactory(
        dead=True, attempts=3, max_attempts=3, queue="mail", error_class="smtplib.SMTPException", last_error="no\nroute"
    )
    text = ann.get(LIST).content.decode()
    for said in ("scripted", "mail", "3/3", "Dead", "SMTPException", "no", "1 min ago"):
        assert said in text
    assert "route" not in text  # the first line is enough


@pytest.mark.parametrize(
    ("query", "traits"),
    [
        ("?status=pending", {"", "scheduled", "retrying", "snoozed", "released", "expired"}),
        ("?status=reserved", {"reserved", "lapsed", "cancel_requested"}),
        ("?status=dead", {"dead"}),
        ("?status=dead_letters", {"dead", "failed"}),
        ("?status=nonsense", set()),
        ("?kind=scripted", {"", *TRAITS}),
        ("?kind=other", set()),
        ("?queue=default&status=dead_letters", {"dead", "failed"}),
        ("?queue=other", set()),
        ("?kind=scripted&status=done", {"done"}),
        ("?kind=scripted&queue=default&finished=hour", {"done", "failed", "dead", "cancelled", "lapsed_unused"}),
        ("?finished=day&status=pending", set()),
        ("?finished=nonsense&status=failed", {"failed"}),
    ],
)
def test_filters(ann: Client, query: str, traits: set[str]) -> None:
    made = {trait: JobFactory(**({trait: True} if trait else {})).pk for trait in ("", *TRAITS)}
    response = ann.get(LIST + query)
    assert response.status_code == 200
    assert {trait for trait, pk in made.items() if pk in listed(response)} == traits
    assert int(response.context["cl"].result_count) == len(traits)


def test_finished_within(ann: Client) -> None:
    new = JobFactory(done=True)
    old = JobFactory(done=True, finished_at=timezone.now() - dt.timedelta(hours=3))
    assert listed(ann.get(LIST + "?finished=hour")) == [new.pk]
    assert listed(ann.get(LIST + "?finished=day")) == [new.pk, old.pk]


def test_orders(ann: Client) -> None:
    """Pending ones as they are claimed; finished ones the latest first; mixed lists running, waiting, finished."""
    low, high = JobFactory(priority=0), JobFactory(priority=5)
    early, late = (JobFactory(done=True, finished_at=timezone.now() - dt.timedelta(minutes=m)) for m in (9, 3))
    running = JobFactory(reserved=True)
    assert listed(ann.get(LIST + "?status=pending")) == [high.pk, low.pk]
    assert listed(ann.get(LIST + "?status=done")) == [late.pk, early.pk]
    assert listed(ann.get(LIST + "?kind=scripted")) == [running.pk, high.pk, low.pk, late.pk, early.pk]


def test_pages_neither_repeat_nor_lose_a_row(ann: Client) -> None:
    same = timezone.now() - dt.timedelta(minutes=5)
    jobs = {JobFactory(**{trait: True}, finished_at=same, history=False).pk for trait in ["dead", "failed"] * 60}
    pages = [listed(ann.get(LIST + f"?status=dead_letters&p={n}")) for n in (1, 2, 3)]
    assert [len(found) for found in pages] == [50, 50, 20]
    assert set().union(*pages) == jobs
    assert listed(ann.get(LIST + "?status=dead_letters&p=999")) == pages[2]  # clamped


def test_what_is_counted_roughly_says_so(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "CAP", 100)
    monkeypatch.setattr(listing, "CAP", 100)
    for _ in range(103):
        JobFactory(done=True, history=False)
    response = ann.get(LIST + "?status=done")
    assert str(response.context["cl"].result_count) == "100+"
    assert response.context["cl"].paginator.num_pages == 2  # what lies beyond is for filters
    assert "100+ jobs" in response.content.decode()


def test_counts_print_what_is_known() -> None:
    assert str(Count(1234)) == "1,234"
    assert str(Count(10_001, "10,000+")) == "10,000+"
    assert Count(3) == 3
    assert Count(3) > 2
    assert Count(3) != 4


@pytest.mark.parametrize("thousands", [True, False])
def test_counts_survive_localization(ann: Client, settings: Any, thousands: bool) -> None:
    settings.USE_THOUSAND_SEPARATOR = thousands
    JobFactory()
    assert ann.get(LIST).status_code == 200
    assert ann.get(LIST + "?q=1").status_code == 200


def test_only_what_was_looked_through_is_found(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """No index knows the queue of a finished job: the latest ones are looked through, and the list says so."""
    monkeypatch.setattr(lists, "WINDOW", 2)
    old = JobFactory(done=True, queue="rare", finished_at=timezone.now() - dt.timedelta(hours=1))
    for _ in range(2):
        JobFactory(done=True)
    response = ann.get(LIST + "?status=done&queue=rare")
    assert old.pk not in listed(response)
    assert "were looked through" in response.content.decode()
    assert "were looked through" not in ann.get(LIST + "?status=pending&queue=rare").content.decode()


def test_search_by_id_and_key(ann: Client) -> None:
    live = JobFactory(dedupe_key="receipt-42", kind="add")
    other = JobFactory(dedupe_key="receipt-42", kind="of_another:service")
    ended = JobFactory(done=True, dedupe_key="receipt-42", kind="add")
    assert listed(ann.get(LIST + f"?q={live.pk}")) == [live.pk]
    assert listed(ann.get(LIST + f"?q=%23{ended.pk}")) == [ended.pk]
    assert listed(ann.get(LIST + "?q=receipt-42")) == [live.pk]  # of kinds that have a handler here
    assert listed(ann.get(LIST + "?q=add:receipt-42")) == [live.pk]
    assert listed(ann.get(LIST + "?q=of_another:service:receipt-42")) == [other.pk]
    for nothing in ("receipt", "99999999999999999999999", "-1", "٣", "'; --", "a:b:c:d:e:f"):
        assert listed(ann.get(LIST + f"?q={nothing}")) == []
    assert listed(ann.get(LIST + f"?q={ended.pk}&status=pending")) == []  # within the filter
    assert ann.get(LIST + "?q=%00&kind=%00").status_code == 200


def test_filter_choices_come_from_handlers_and_rows(ann: Client) -> None:
    JobFactory(done=True, kind="of_another_service")
    JobFactory(queue="urgent")
    kind, queue = (ann.get(LIST).context["cl"].filter_specs[n].lookup_choices for n in (1, 2))
    assert {"of_another_service", "add", "plus", "scripted"} <= {value for value, _label in kind}
    assert {"urgent", "sums"} <= {value for value, _label in queue}
    asked = ann.get(LIST + "?kind=asked_for").context["cl"].filter_specs[1].lookup_choices
    assert "asked_for" in {value for value, _label in asked}


def test_only_the_filters_filter(ann: Client) -> None:
    """A lookup of another column would scan, and could guess at a payload letter by letter."""
    for query in ("payload__password=x", "last_error__contains=x", "dedupe_key=x", "status__in=dead"):
        assert ann.get(f"{LIST}?{query}").status_code == 400
    assert ann.get(LIST + "?o=1.-2&all=&_facets=True&e=1").status_code == 200


def test_it_takes_eight_queries(ann: Client, django_assert_max_num_queries: Any) -> None:
    for _ in range(60):
        JobFactory(dead=True)
    ann.get(LIST)
    for query in ("", "?status=dead_letters", "?kind=scripted", "?queue=default", "?q=1"):
        with django_assert_max_num_queries(8):
            ann.get(LIST + query)


def test_nothing_heavy_is_loaded(ann: Client) -> None:
    JobFactory(done=True, payload={"text": "needle-in-payload"}, result={"text": "needle-in-result"})
    response = ann.get(LIST)
    [job] = response.context["cl"].result_list
    assert job.get_deferred_fields() >= {"payload", "result", "meta", "progress", "last_error", "worker_ids"}
    assert b"needle" not in response.content


def test_it_says_that_nobody_works_and_what_is_paused(ann: Client) -> None:
    assert "No worker is alive" in ann.get(LIST).content.decode()
    WorkerFactory()
    PauseFactory(name="mail", by="bo", reason="the relay <b>moves</b>")
    text = ann.get(LIST).content.decode()
    assert "No worker is alive" not in text
    assert "Queue “mail” is paused by bo until somebody resumes it: the relay &lt;b&gt;moves&lt;/b&gt;." in text


def test_hostile_names_are_shown_as_they_are(ann: Client) -> None:
    JobFactory(
        dead=True, kind="<script>alert(1)</script>", queue="a\u202eb", last_error="<img src=x>\u202e", error_class="<i>"
    )
    text = ann.get(LIST).content.decode()
    for raw in ("<script>alert", "<img src=x", "<i>", "\u202e"):
        assert raw not in text
    assert "a\\u202eb" in text


def test_looking_changes_nothing(ann: Client) -> None:
    from tests.rows import nothing_changes

    job = JobFactory(dead=True)
    with nothing_changes():
        ann.get(LIST + f"?action=prune&_selected_action={job.pk}&index=0")
