"""The moves that a person asks for, on a selection and on the page of a job."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import connection, transaction
from django.test import Client
from django.utils import timezone

from pgjobs.admin import jobs as admin_jobs
from pgjobs.admin import moves
from pgjobs.models import Attempt, Job
from tests.factories import FINAL_TRAITS, TRAITS, JobFactory
from tests.rows import columns, database_now, nothing_changes

from .conftest import LIST, act, listed, move, page, told

pytestmark = pytest.mark.django_db

PENDING = {"", "scheduled", "retrying", "snoozed", "released", "expired"}
RUNNING = {"reserved", "lapsed", "cancel_requested"}
ALLOWED = {
    "retry_now": ({*FINAL_TRAITS, "lapsed_unused"}, "pending"),
    "cancel": (PENDING, "cancelled"),
    "bury": (PENDING, "dead"),
    "prune": ({*FINAL_TRAITS, "lapsed_unused"}, None),
}


@pytest.mark.parametrize("trait", ["", *TRAITS])
@pytest.mark.parametrize("name", ALLOWED)
def test_each_move_of_each_state(ann: Client, name: str, trait: str) -> None:
    """F141: what does not fit the state is refused, and said."""
    job = JobFactory(**({trait: True} if trait else {}))
    before = job.status
    traits, after = ALLOWED[name]
    response = act(ann, name, job)
    assert response.status_code == 302
    status = Job.objects.filter(pk=job.pk).values_list("status", flat=True).first()
    assert status == (after if trait in traits else before)
    if (
        trait not in traits
        and not (name == "cancel" and trait in RUNNING)
        and (name, trait) != ("retry_now", "retrying")
    ):
        assert "1 skipped" in told(response)


def test_retry_keeps_history_and_counts(ann: Client) -> None:
    """F76, F142: three filtered dead jobs: three pending, and the message says three."""
    jobs = [JobFactory(dead=True, attempts=2) for _ in range(3)]
    response = act(ann, "retry_now", *jobs, query="?status=dead")
    assert told(response) == "3 jobs retried: they are due now."
    assert set(Job.objects.values_list("status", "max_attempts")) == {("pending", 3)}
    assert Attempt.objects.count() == 6
    again = told(act(ann, "retry_now", *jobs))  # a second click
    assert again.endswith("Nothing changed. 3 skipped: 3 not finished yet.")


def test_retry_brings_a_waiting_attempt_forward(ann: Client) -> None:
    job = JobFactory(retrying=True)
    response = act(ann, "retry_now", job)
    assert told(response) == "1 waiting job brought forward."
    assert columns(job.pk)["run_after"] <= database_now()


def test_retry_in_bulk_leaves_a_first_run_its_time(ann: Client) -> None:
    job = JobFactory(scheduled=True)
    with nothing_changes():
        response = act(ann, "retry_now", job)
    assert "1 that wait for their first run" in told(response)
    response = ann.post(move(job, "retry_now"))
    assert (response.status_code, response.url) == (302, page(job))
    assert columns(job.pk)["run_after"] <= database_now()


def test_retry_names_who_holds_the_key(ann: Client) -> None:
    holder = JobFactory(dedupe_key="k")
    ended, free = JobFactory(dead=True, dedupe_key="k"), JobFactory(dead=True)
    response = act(ann, "retry_now", ended, free)
    assert (
        f"1 job retried: it is due now. 1 skipped: 1 whose key another live job holds (#{ended.pk}: in use by #{holder.pk})"
        in (told(response))
    )
    assert columns(ended.pk)["status"] == "dead"


def test_cancel_says_who(ann: Client) -> None:
    waiting, running, ended = JobFactory(), JobFactory(reserved=True), JobFactory(done=True)
    response = act(ann, "cancel", waiting, running, ended)
    assert told(response) == "1 job cancelled; 1 running job asked to stop. 1 skipped: 1 already finished."
    assert columns(waiting.pk)["last_error"] == "cancelled by ann"
    assert columns(running.pk)["cancel_requested_at"] is not None


def test_bury_says_who(ann: Client) -> None:
    job = JobFactory()
    act(ann, "bury", job)
    assert columns(job.pk)["last_error"] == "buried by ann"


def test_deleting_takes_the_history_along(ann: Client) -> None:
    job, running = JobFactory(dead=True, attempts=2), JobFactory(reserved=True)
    response = act(ann, "prune", job, running)
    assert told(response) == "1 job deleted. 1 skipped: 1 not finished yet."
    assert not Attempt.objects.filter(job_id=job.pk).exists()
    assert list(Job.objects.values_list("pk", flat=True)) == [running.pk]


def test_vanished_jobs_are_counted(ann: Client) -> None:
    """F144"""
    jobs = [JobFactory(dead=True) for _ in range(3)]
    gone = jobs[0].pk
    jobs[0].delete()
    assert (
        told(act(ann, "retry_now", gone, *jobs[1:])) == "2 jobs retried: they are due now. 1 skipped: 1 gone meanwhile."
    )
    assert "1 gone meanwhile" in told(act(ann, "prune", "999999999999999999"))


@pytest.mark.parametrize("forged", ["nonsense", "-1", "1.5", "99999999999999999999", "٣", ""])
def test_forged_ids_are_refused(ann: Client, forged: str) -> None:
    assert act(ann, "retry_now", forged).status_code == 400


def test_busy_ones_are_not_waited_for(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from pgjobs import store

    monkeypatch.setattr(store, "requeue", lambda _connection, ids: dict.fromkeys(ids, ("busy", None)))
    assert "busy" in told(act(ann, "retry_now", JobFactory(dead=True)))


def test_select_all_takes_what_the_filter_finds(ann: Client) -> None:
    dead = [JobFactory(dead=True, history=False) for _ in range(60)]
    other = JobFactory(failed=True)
    response = act(ann, "retry_now", dead[0], across=True, query="?status=dead")
    assert told(response) == "60 jobs retried: they are due now."
    assert columns(other.pk)["status"] == "failed"


def test_select_all_does_not_run_done_ones_again(ann: Client) -> None:
    """Unless the list is filtered for them, or they are selected one by one."""
    done, dead = JobFactory(done=True), JobFactory(dead=True)
    response = act(ann, "retry_now", dead, across=True)
    assert told(response) == (
        "1 job retried: it is due now. 1 skipped: 1 done already (filter for done ones to run them again)."
    )
    assert columns(done.pk)["status"] == "done"
    act(ann, "retry_now", done, across=True, query="?status=done")
    assert columns(done.pk)["status"] == "pending"


def test_select_all_of_a_search(ann: Client) -> None:
    first, second = JobFactory(dead=True), JobFactory(dead=True)
    act(ann, "retry_now", first, across=True, query=f"?q={first.pk}")
    assert [columns(job.pk)["status"] for job in (first, second)] == ["pending", "dead"]


def test_select_all_has_a_cap_and_says_so(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """F75"""
    monkeypatch.setattr(admin_jobs, "MOST", 20)
    for _ in range(30):
        JobFactory(dead=True, history=False)
    response = act(ann, "retry_now", 0, across=True, query="?status=dead")
    assert told(response).startswith("20 jobs retried: they are due now. These were the first 20 of the list")
    again = told(act(ann, "retry_now", 0, across=True, query="?status=dead"))
    assert again.endswith(" 10 jobs retried: they are due now.")


def test_what_was_done_is_logged(ann: Client) -> None:
    job, gone = JobFactory(dead=True, kind="add"), JobFactory(done=True)
    act(ann, "retry_now", job)
    act(ann, "prune", gone)
    act(ann, "bury", JobFactory(done=True))  # moved nothing: nothing to log
    first, second = LogEntry.objects.order_by("id")
    assert (first.object_id, first.object_repr, first.action_flag) == (str(job.pk), f"add #{job.pk}", CHANGE)
    assert (first.user.username, first.change_message) == ("ann", "Retried.")
    assert (second.object_id, second.action_flag) == (str(gone.pk), DELETION)
    assert "Retried." in ann.get(f"{LIST}{job.pk}/history/").content.decode()


def test_many_share_a_log_entry(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "LOGGED_EACH", 3)
    act(ann, "cancel", *(JobFactory() for _ in range(5)))
    [entry] = LogEntry.objects.all()
    assert "5 jobs" in entry.object_repr
    assert ann.get("/admin/").status_code == 200


@pytest.mark.django_db(transaction=True)
def test_atomic_requests_do_not_hold_the_rows(ann: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """F75: with ATOMIC_REQUESTS too, a move is committed batch by batch."""
    from pgjobs import store

    inside = []
    real = store.cancel

    def cancel(conn: Any, ids: Any, *, by: str = "") -> Any:
        inside.append(conn.in_atomic_block)
        return real(conn, ids, by=by)

    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    monkeypatch.setitem(moves.MOVES, "cancel", dataclasses.replace(moves.MOVES["cancel"], perform=moves._plain(cancel)))
    act(ann, "cancel", JobFactory())
    ann.post(move(JobFactory(), "cancel"))
    assert inside == [False, False]


def test_the_buttons_of_a_page(ann: Client) -> None:
    for trait, names in {
        "": ["cancel", "bury"],
        "scheduled": ["retry_now", "cancel", "bury"],
        "retrying": ["retry_now", "cancel", "bury"],
        "reserved": ["cancel"],
        "cancel_requested": [],
        "done": ["retry_now", "prune"],
        "dead": ["retry_now", "prune"],
        "cancelled": ["retry_now", "prune"],
    }.items():
        job = JobFactory(**({trait: True} if trait else {}))
        response = ann.get(page(job))
        assert [button.name for button in response.context["buttons"]] == names, trait
        for name in names:
            assert f'action="{move(job, name)}"' in response.content.decode()


def test_a_button_calls_the_verb_and_comes_back(ann: Client) -> None:
    job = JobFactory(dead=True)
    response = ann.post(move(job, "retry_now"))
    assert (response.status_code, response.url) == (302, page(job))
    assert told(response) == "1 job retried: it is due now."
    response = ann.post(move(job, "bury"))
    assert columns(job.pk)["status"] == "dead"
    response = ann.post(move(job, "prune"))
    assert (response.status_code, response.url) == (302, LIST)
    response = ann.post(move(job, "prune"))
    assert response.url == LIST
    assert "is not there any more" in told(response)


def test_moves_in_the_callers_transaction_are_its_own(ann: Client) -> None:
    job = JobFactory(dead=True)
    with transaction.atomic():
        act(ann, "retry_now", job)
        transaction.set_rollback(True)
    assert columns(job.pk)["status"] == "dead"


@pytest.mark.bench
def test_a_hundred_thousand_dead_letters(ann: Client) -> None:
    """F75: each run of the action takes its 10,000 in a few seconds; one key in use does not stop the rest."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (kind, status, finished_at, attempts, last_error, dedupe_key)"
            " SELECT 'scripted', 'dead', now() - n * interval '1 s', 10, 'boom', CASE WHEN n = 5 THEN 'k' END"
            " FROM generate_series(1, 100000) n"
        )
        cursor.execute("INSERT INTO pgjobs_job (kind, dedupe_key) VALUES ('scripted', 'k')")
        cursor.execute("ANALYZE pgjobs_job")
    start = timezone.now()
    response = act(ann, "retry_now", 0, across=True, query="?status=dead")
    assert timezone.now() - start < dt.timedelta(seconds=10)
    assert "9,999 jobs retried" in told(response)
    assert "1 whose key another live job holds" in told(response)
    assert len(listed(ann.get(LIST + "?status=dead"))) == 50
