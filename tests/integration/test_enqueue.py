"""enqueue() and its relatives, as their callers see them."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from pgjobs import aenqueue, aenqueue_many, enqueue, enqueue_many, signals
from pgjobs.api import context
from pgjobs.api.context import set_context_hooks
from pgjobs.exceptions import ConfigurationError, EnqueueError, PayloadTooLarge, PayloadTypeError, SchemaError
from pgjobs.models import Job
from tests.factories import JobFactory
from tests.rows import columns, database_now
from tests.testapp.jobs import add, echo, scripted, write_note
from tests.testapp.models import Note

pytestmark = pytest.mark.django_db


def the_job() -> Job:
    return Job.objects.get()


# What is stored ------------------------------------------------------------------------------------------------------


def test_options_come_from_the_call_then_the_handler_then_the_settings() -> None:
    with override_settings(PGJOBS={"MAX_ATTEMPTS": 6, "TIMEOUT": 60}):
        handler = columns(add.enqueue(a=1).id)
        default = columns(scripted.enqueue().id)
        foreign = columns(enqueue("of.another.service").id)
        call = columns(
            enqueue(add, {"a": 1}, queue="q", priority=-1, max_attempts=9, timeout=dt.timedelta(minutes=2)).id
        )
    names = ("kind", "queue", "priority", "max_attempts", "timeout")
    seconds = lambda n: dt.timedelta(seconds=n)  # noqa: E731
    assert [handler[n] for n in names] == ["add", "sums", 7, 3, seconds(45)]
    assert [default[n] for n in names] == ["scripted", "default", 0, 6, seconds(60)]
    assert [foreign[n] for n in names] == ["of.another.service", "default", 0, 6, seconds(60)]
    assert [call[n] for n in names] == ["add", "q", -1, 9, seconds(120)]


def test_no_timeout_is_no_limit() -> None:
    assert enqueue(add, {"a": 1}, timeout=None).get().timeout is None
    assert add.using(timeout=None).enqueue(1).get().timeout is None
    with override_settings(PGJOBS={"TIMEOUT": None}):
        assert scripted.enqueue().get().timeout is None
        assert add.enqueue(1).get().timeout == dt.timedelta(seconds=45)


def test_all_ways_to_enqueue_store_the_same() -> None:
    ways: list[Callable[[], Any]] = [
        lambda: add.enqueue(1, 2),
        lambda: add.enqueue(1, b=2),
        lambda: add.enqueue(a=1, b=2),
        lambda: enqueue(add, {"a": 1, "b": 2}),
        lambda: enqueue("add", {"a": 1, "b": 2}),
        lambda: enqueue("plus", {"a": 1, "b": 2}),  # an alias is stored under the kind's own name
        lambda: add.using().enqueue(1, 2),
        lambda: enqueue_many([add.prepare(1, 2)])[0],
        lambda: enqueue_many([(add, {"a": 1, "b": 2})])[0],
        lambda: enqueue_many([("plus", {"a": 1, "b": 2})])[0],
        lambda: async_to_sync(add.aenqueue)(1, 2),
        lambda: async_to_sync(aenqueue)(add, {"a": 1, "b": 2}),
        lambda: async_to_sync(aenqueue_many)([add.prepare(a=1, b=2)])[0],
    ]
    for way in ways:
        handle = way()
        assert (handle.created, handle.action, handle.kind, handle.queue, handle.using) == (
            True, "created", "add", "sums", "default",
        )  # fmt: skip
        row = columns(handle.id)
        assert (row["kind"], row["payload"], row["queue"], row["priority"]) == ("add", {"a": 1, "b": 2}, "sums", 7)


@pytest.mark.parametrize("given", [3600, 3600.0, dt.timedelta(hours=1), lambda: timezone.now() + dt.timedelta(hours=1)])
def test_run_after_is_a_time_or_a_delay(given: Any) -> None:
    job = enqueue("x", run_after=given() if callable(given) else given).get()
    assert abs(job.run_after - database_now() - dt.timedelta(hours=1)) < dt.timedelta(seconds=10)


def test_run_after_in_another_zone_is_the_same_instant() -> None:
    when = dt.datetime(2031, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=5, minutes=45)))
    assert enqueue("x", run_after=when).get().run_after == when
    assert enqueue_many([("x", None)])
    assert enqueue_many([echo.using(run_after=when).prepare()])[0].get().run_after == when


@override_settings(USE_TZ=False, TIME_ZONE="Asia/Kathmandu")
def test_without_use_tz_naive_times_are_of_the_time_zone() -> None:
    """F91: the instant is stored."""
    later = dt.datetime.now() + dt.timedelta(hours=1)  # noqa: DTZ005
    handle = enqueue("x", run_after=later, expires_at=later)
    [many] = enqueue_many([echo.using(run_after=later).prepare()])
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('TimeZone')")
        [zone] = cursor.fetchone()
        cursor.execute("SELECT run_after = %s::timestamp AT TIME ZONE %s FROM pgjobs_job", [later, zone])
        assert cursor.fetchall() == [(True,), (True,)]
    assert handle.id != many.id


@pytest.mark.parametrize(
    "payload",
    [
        {"big": 2**70, "minus": -0.0, "small": 1e-300},
        {"literal": "\\u0000", "back": "\\", "quote": "\"'", "emoji": "😀", "line": "\u2028\n\t"},
        {"": None, "nested": [[], {}, [{"a": [True, False]}]]},
    ],
)
@pytest.mark.parametrize("many", [False, True])
def test_payloads_come_back_as_they_were(payload: dict[str, Any], many: bool) -> None:
    """F117, F122"""
    handle = enqueue_many([(echo, payload)])[0] if many else enqueue(echo, payload)
    assert handle.get().payload == payload


def test_a_payload_that_was_changed_later_is_stored_as_it_was() -> None:
    payload = {"a": [1]}
    prepared = echo.prepare(**payload)
    payload["a"].append(2)
    assert enqueue_many([prepared])[0].get().payload == {"a": [1]}


# What is refused -----------------------------------------------------------------------------------------------------

NAIVE = dt.datetime(2031, 1, 1)  # noqa: DTZ001

REFUSED: list[tuple[Any, Any, dict[str, Any], type[Exception], str]] = [
    (add, {}, {}, PayloadTypeError, r"^payload\.a: add\(\) needs the argument 'a'"),
    (add, None, {}, PayloadTypeError, r"^payload\.a: "),
    (add, {"a": 1, "c": 1}, {}, PayloadTypeError, r"^payload\.c: add\(\) has no argument 'c'"),
    ("plus", {"a": 1, "c": 1}, {}, PayloadTypeError, r"^payload\.c: "),
    (add, [1], {}, PayloadTypeError, "^payload has to be a dict of the handler's arguments, not list"),
    (add, "a", {}, PayloadTypeError, "^payload has to be a dict"),
    (add, {"a": {1}}, {}, PayloadTypeError, r"^payload\.a is of type set"),
    (add, {"a": Note(pk=1)}, {}, PayloadTypeError, "Pass its primary key"),
    (echo, {"a": [{"b": dt.date(2026, 1, 1)}]}, {}, PayloadTypeError, r"^payload\.a\[0\]\.b is of type date"),
    (add, {"a": float("nan")}, {}, EnqueueError, r"^payload\.a is nan"),
    (add, {"a": "\x00"}, {}, EnqueueError, r"^payload\.a holds a NUL"),
    (add, {"a": "\ud800"}, {}, EnqueueError, r"^payload\.a holds a lone surrogate"),
    (
        add,
        {"a": "x" * 1024 * 1024},
        {},
        PayloadTooLarge,
        "^payload has 1,048,584 bytes of JSON; the limit is 1,048,576",
    ),
    ("", None, {}, EnqueueError, "^kind has to have 1 to 255 bytes"),
    ("k" * 256, None, {}, EnqueueError, "^kind has to have 1 to 255 bytes"),
    ("a\x00", None, {}, EnqueueError, "^kind holds a NUL"),
    (len, None, {}, EnqueueError, r"takes a function with @job or a kind .*Is the decorator missing\?"),
    (None, None, {}, EnqueueError, "takes a function with @job or a kind"),
    ("x", None, {"queue": ""}, EnqueueError, "^queue has to have 1 to 255 bytes"),
    ("x", None, {"queue": 5}, EnqueueError, "^queue has to be text, not int"),
    ("x", None, {"queue": "ü" * 128}, EnqueueError, "^queue has to have 1 to 255 bytes; it has 256"),
    ("x", None, {"dedupe_key": ""}, EnqueueError, "^dedupe_key has to have 1 to 2,000 bytes"),
    ("x", None, {"dedupe_key": "k" * 2001}, EnqueueError, "^dedupe_key has to have 1 to 2,000 bytes"),
    ("x", None, {"dedupe_key": 5}, EnqueueError, "^dedupe_key has to be text, not int"),
    ("x", None, {"priority": 101}, EnqueueError, "^priority has to be a whole number from -100 to 100, not 101"),
    ("x", None, {"priority": 40_000}, EnqueueError, "from -100 to 100"),
    ("x", None, {"priority": -101}, EnqueueError, "from -100 to 100"),
    ("x", None, {"priority": "5"}, EnqueueError, "^priority has to be a whole number"),
    ("x", None, {"priority": True}, EnqueueError, "^priority has to be a whole number"),
    ("x", None, {"max_attempts": 0}, EnqueueError, "^max_attempts has to be a whole number from 1"),
    ("x", None, {"max_attempts": 2**31}, EnqueueError, "^max_attempts has to be a whole number"),
    ("x", None, {"timeout": 0}, EnqueueError, "^timeout has to be above zero; None means no limit"),
    ("x", None, {"timeout": -1}, EnqueueError, "^timeout takes a duration"),
    ("x", None, {"timeout": float("inf")}, EnqueueError, "^timeout takes a duration"),
    ("x", None, {"timeout": "5"}, EnqueueError, "^timeout takes seconds or a timedelta; got str"),
    ("x", None, {"run_after": NAIVE}, EnqueueError, "^run_after is a naive datetime while USE_TZ is on"),
    (
        "x",
        None,
        {"run_after": NAIVE.date()},
        EnqueueError,
        "^run_after takes a datetime, a timedelta or seconds; got date",
    ),
    ("x", None, {"run_after": "2031-01-01"}, EnqueueError, "^run_after takes a datetime"),
    ("x", None, {"run_after": True}, EnqueueError, "^run_after takes a datetime, a timedelta or seconds; got bool"),
    ("x", None, {"run_after": -1}, EnqueueError, "^run_after takes a duration from 0"),
    ("x", None, {"run_after": dt.timedelta.max}, EnqueueError, "^run_after takes a duration"),
    ("x", None, {"run_after": dt.datetime.max.replace(tzinfo=dt.UTC)}, EnqueueError, "^run_after has to lie between"),
    ("x", None, {"expires_at": NAIVE}, EnqueueError, "^expires_at is a naive datetime"),
    ("x", None, {"expires_at": 5}, EnqueueError, "^expires_at has to be a datetime, not int"),
    ("x", None, {"expires_at": dt.datetime.min.replace(tzinfo=dt.UTC)}, EnqueueError, "^expires_at has to lie between"),
    (
        "x",
        None,
        {"on_conflict": "skip"},
        EnqueueError,
        "^on_conflict has to be 'keep', 'replace' or 'rerun', not 'skip'",
    ),
    ("x", None, {"on_conflict": None}, EnqueueError, "^on_conflict has to be"),
    ("x", None, {"meta": []}, EnqueueError, "^meta has to be a dict or None, not list"),
    ("x", None, {"meta": {"a": object()}}, PayloadTypeError, r"^meta\.a is of type object"),
    ("x", None, {"meta": {"a": "\x00"}}, EnqueueError, r"^meta\.a holds a NUL"),
    ("x", None, {"using": "elsewhere"}, EnqueueError, "^using='elsewhere' is no alias of DATABASES; there are default"),
]


@pytest.mark.parametrize(("kind", "payload", "options", "error", "message"), REFUSED)
def test_what_cannot_be_stored_is_refused_and_the_transaction_is_usable(
    kind: Any, payload: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Each names the argument, is a ValueError, and is raised before anything is sent."""
    with transaction.atomic():
        Note.objects.create(text="before")
        with pytest.raises(error, match=message) as caught:
            enqueue(kind, payload, **options)
        Note.objects.create(text="after")
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, TypeError) == (error is PayloadTypeError)
    assert Note.objects.count() == 2
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"queue": ""}, "^queue"), ({"priority": 999}, "^priority"), ({"run_after": NAIVE}, "^run_after")],
)
def test_using_is_checked_by_the_call_that_needs_it(options: dict[str, Any], message: str) -> None:
    for call in (add.using(**options).enqueue, add.using(**options).prepare):
        with pytest.raises(EnqueueError, match=message):
            call(1)


def test_using_refuses_options_that_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="using\\(\\) does not know prio; it takes dedupe_key"):
        add.using(prio=5)


def test_using_adds_up_and_changes_nothing_of_its_origin() -> None:
    first = add.using(priority=1, queue="a")
    second = first.using(queue="b", dedupe_key="k")
    assert (columns(first.enqueue(1).id)["queue"], columns(second.enqueue(1).id)["queue"]) == ("a", "b")
    row = Job.objects.get(queue="b")
    assert (row.priority, row.dedupe_key) == (1, "k")
    assert columns(add.enqueue(1).id)["queue"] == "sums"


@override_settings(PGJOBS={"QUEUES": ["default", "mail"]})
def test_a_typo_in_the_name_of_a_queue_is_told_when_queues_are_declared() -> None:
    """F137"""
    with pytest.raises(EnqueueError, match=r"^queue 'emial' is none of PGJOBS\['QUEUES'\]: default, mail"):
        enqueue("x", queue="emial")
    with pytest.raises(EnqueueError, match=r"^queue 'sums' is none of"):
        add.enqueue(1)
    assert enqueue("x", queue="mail").created


@override_settings(PGJOBS={"MAX_PAYLOAD_BYTES": 100})
def test_the_limit_of_a_payload_is_a_setting() -> None:
    """F123"""
    assert enqueue("x", {"a": "x" * 92}).created
    for payload in ({"a": "x" * 93}, {"a": "ü" * 47}):
        with pytest.raises(PayloadTooLarge, match=r"the limit is 100 \(PGJOBS\['MAX_PAYLOAD_BYTES'\]\)"):
            enqueue("x", payload)
    with pytest.raises(PayloadTooLarge, match=r"^meta has "):
        enqueue("x", meta={"a": "x" * 100})


@override_settings(PGJOBS={"LEESE": 1})
def test_settings_that_cannot_work_are_told() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'LEASE'"):
        enqueue("x")


# The caller's transaction ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("many", [False, True])
def test_a_job_exists_if_and_only_if_its_transaction_commits(many: bool, transactional_db: None) -> None:
    def put(text: str) -> None:
        if many:
            enqueue_many([write_note.using(dedupe_key=text).prepare(text), write_note.prepare(text)])
        else:
            write_note.enqueue(text)

    with transaction.atomic():
        put("rolled back")
        transaction.set_rollback(True)
    with transaction.atomic():
        put("kept")
        with transaction.atomic():
            put("savepoint")
            transaction.set_rollback(True)
        put("kept too")
    texts = set(Job.objects.values_list("payload__text", flat=True))
    assert texts == {"kept", "kept too"}


def test_a_duplicate_changes_nothing_for_the_callers_transaction() -> None:
    """F29"""
    with transaction.atomic():
        Note.objects.create(text="a")
        first = add.using(dedupe_key="k").enqueue(1)
        second = add.using(dedupe_key="k").enqueue(2)
        Note.objects.create(text="b")
    assert Note.objects.count() == 2
    assert (second.id, second.created, second.action) == (first.id, False, "kept")
    assert second.get().payload == {"a": 1}


def test_a_handle_of_a_job_that_is_gone_says_so() -> None:
    handle = add.enqueue(1)
    Job.objects.all().delete()
    with pytest.raises(Job.DoesNotExist):
        handle.get()


# enqueue_many ---------------------------------------------------------------------------------------------------------


def test_many_of_any_mix_an_answer_for_each_in_order() -> None:
    """F33"""
    holder = JobFactory(kind="add", dedupe_key="held")
    handles = enqueue_many(
        [
            add.prepare(1),
            ("of.another.service", {"x": 1}),
            add.using(dedupe_key="held").prepare(2),
            (echo, None),
            add.using(dedupe_key="new", priority=50).prepare(3),
            add.using(dedupe_key="new").prepare(4),
        ]
    )
    assert [(h.kind, h.created, h.queue) for h in handles] == [
        ("add", True, "sums"), ("of.another.service", True, "default"), ("add", False, "sums"),
        ("echo", True, "default"), ("add", True, "sums"), ("add", False, "sums"),
    ]  # fmt: skip
    assert handles[2].id == holder.pk
    assert handles[5].id == handles[4].id
    assert [h.get().payload for h in handles[:2]] == [{"a": 1}, {"x": 1}]
    assert handles[4].get().priority == 50


def test_many_from_a_generator_in_few_statements(
    django_assert_max_num_queries: Callable[[int], Any],
) -> None:
    """F84, F33: 20,000, of which every tenth is a duplicate of an existing one, and two are equal."""
    existing = {n: JobFactory(kind="echo", dedupe_key=f"k{n}").pk for n in range(0, 200, 10)}

    def jobs() -> Iterator[Any]:
        for n in range(20_000):
            yield echo.using(dedupe_key=f"k{n % 200}").prepare(n=n) if n % 10 == 0 else echo.prepare(n=n)

    with django_assert_max_num_queries(20):
        handles = enqueue_many(jobs())
    assert len(handles) == 20_000
    for n, handle in enumerate(handles):
        assert handle.created is (n % 10 != 0), n
        if n % 10 == 0:
            assert handle.id == existing[n % 200]
    assert Job.objects.count() == 18_000 + 20


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("add", "^item 2 of enqueue_many\\(\\) is 'add'; it has to be handler.prepare"),
        ({"kind": "add"}, "^item 2 of enqueue_many"),
        (("add", {"a": 1}, {}), "^item 2 of enqueue_many"),
        (("add", {}), r"payload\.a: add\(\) needs the argument 'a'"),
        (("add", {"a": {1}}), r"payload\.a is of type set"),
        (add.using(using="default"), "^item 2 of enqueue_many"),
    ],
)
def test_one_that_is_wrong_stops_all_and_the_transaction_is_usable(
    wrong: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgjobs.api.enqueueing.CHUNK", 1)  # those before it are sent already
    with transaction.atomic():
        with pytest.raises(EnqueueError, match=message):
            enqueue_many([add.prepare(1), add.prepare(2), wrong])
        Note.objects.create(text="after")
    assert not Job.objects.exists()
    assert Note.objects.exists()


@pytest.mark.parametrize("keyed", [False, True])
def test_many_large_ones_go_in_several_statements(keyed: bool) -> None:
    """Each payload is within its limit, but PostgreSQL takes no more than 256 MiB of jsonb at once."""
    text = "x" * 1_000_000
    jobs = [
        scripted.using(dedupe_key=f"large-{n}" if keyed else None).prepare(steps=[["return", text]]) for n in range(20)
    ]
    with CaptureQueriesContext(connection) as queries:
        handles = enqueue_many(jobs)
    statements = [query["sql"] for query in queries.captured_queries if "pgjobs_enqueue_many" in query["sql"]]
    assert len(statements) == 3
    assert max(map(len, statements)) < 10 * 2**20
    assert [handle.created for handle in handles] == [True] * 20
    assert Job.objects.filter(pk__in=[handle.id for handle in handles]).count() == 20


def test_many_of_none() -> None:
    assert enqueue_many([]) == []
    assert enqueue_many(iter(())) == []


# Meta, hooks, parents -------------------------------------------------------------------------------------------------


@pytest.fixture
def _no_hooks() -> Iterator[None]:
    yield
    set_context_hooks(None, None)


@pytest.mark.usefixtures("_no_hooks")
def test_context_travels_in_meta_and_is_restored_around_the_run() -> None:
    """F148"""
    seen: list[Any] = []

    class Restore:
        def __init__(self, meta: Any) -> None:
            seen.append(dict(meta))

        def __enter__(self) -> None:
            seen.append("in")

        def __exit__(self, *_: object) -> None:
            seen.append("out")

    set_context_hooks(lambda: {"request": "r-1", "tenant": 5}, Restore)
    meta = add.using(meta={"tenant": 6, "own": True}).enqueue(1).get().meta
    assert meta == {"request": "r-1", "tenant": 6, "own": True}
    assert enqueue_many([add.prepare(1)])[0].get().meta == {"request": "r-1", "tenant": 5}
    with context.restored(meta):
        seen.append("run")
    assert seen == [meta, "in", "run", "out"]


@pytest.mark.usefixtures("_no_hooks")
def test_hooks_that_capture_nothing_or_raise(caplog: pytest.LogCaptureFixture) -> None:
    def broken(meta: Any) -> Any:
        raise ValueError("no context")

    set_context_hooks(dict, broken)
    assert add.enqueue(1).get().meta is None
    ran = []
    with context.restored({"a": 1}):
        ran.append(True)
    assert ran == [True]
    assert "the hook that restores a job's context raised" in caplog.text


def test_hooks_come_in_pairs() -> None:
    with pytest.raises(ConfigurationError, match="both hooks"):
        set_context_hooks(dict, None)


def test_without_hooks_meta_is_what_was_given() -> None:
    assert add.enqueue(1).get().meta is None
    assert add.using(meta={}).enqueue(1).get().meta == {}


def test_a_job_that_a_handler_enqueues_names_its_parent() -> None:
    token = context.current_id.set(2**40)
    try:
        one, many = add.enqueue(1), enqueue_many([add.prepare(1), add.using(dedupe_key="k").prepare(1)])
    finally:
        context.current_id.reset(token)
    assert {h.get().parent_id for h in [one, *many]} == {2**40}
    assert add.enqueue(1).get().parent_id is None


# Signals --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def received() -> Iterator[list[Any]]:
    got: list[Any] = []

    def receiver(sender: str, **named: Any) -> None:
        got.append((sender, named["job"].id, named["job"].kind, named["attempt"], named["exc_info"]))

    signals.job_enqueued.connect(receiver)
    yield got
    signals.job_enqueued.disconnect(receiver)


def test_a_signal_for_each_new_job_and_none_for_a_duplicate(received: list[Any]) -> None:
    one = add.using(dedupe_key="k").enqueue(1)
    assert received == [("add", one.id, "add", 0, None)]
    add.using(dedupe_key="k").enqueue(1)
    assert len(received) == 1
    handles = enqueue_many([echo.prepare(), add.using(dedupe_key="k").prepare(1), add.prepare(2)])
    assert [got[1] for got in received[1:]] == [handles[0].id, handles[2].id]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt()])
def test_a_receiver_that_raises_changes_nothing(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    """F146"""

    def receiver(**_: Any) -> None:
        raise error

    signals.job_enqueued.connect(receiver)
    try:
        with transaction.atomic():
            assert add.enqueue(1).created
            assert enqueue_many([add.prepare(2)])[0].created
    finally:
        signals.job_enqueued.disconnect(receiver)
    assert Job.objects.count() == 2
    assert type(error).__name__ in caplog.text


# Databases, async, notify ---------------------------------------------------------------------------------------------


two_databases = pytest.mark.django_db(transaction=True, databases=["default", "other"])


@two_databases
def test_inside_a_transaction_of_another_database_only_it_warns(caplog: pytest.LogCaptureFixture) -> None:
    """F83"""
    with transaction.atomic(using="other"):
        add.enqueue(1)
    assert "inside a transaction on 'other' only" in caplog.text
    caplog.clear()
    with transaction.atomic(using="other"), transaction.atomic():
        add.enqueue(1)
    add.enqueue(1)
    assert caplog.text == ""


@two_databases
def test_using_is_a_database_alias() -> None:
    with transaction.atomic(using="other"):
        handles = [
            enqueue(add, {"a": 1}, using="other"),
            add.using(using="other").enqueue(1),
            *enqueue_many([add.prepare(1), add.using(using="other").prepare(2)], using="other"),
        ]
        assert [h.using for h in handles] == ["other"] * 4
        assert [h.get().pk for h in handles] == [h.id for h in handles]
        assert Job.objects.count() == 0, "the job is in the transaction of the other alias"
        transaction.set_rollback(True, using="other")
    assert Job.objects.count() == 0
    with pytest.raises(
        EnqueueError, match="item 0 of enqueue_many\\(\\) is prepared for 'other', but stored in 'default'"
    ):
        enqueue_many([add.using(using="other").prepare(1)])
    with override_settings(PGJOBS={"DATABASE": "other"}):
        assert add.enqueue(1).using == "other"


class Elsewhere:
    """A router that sends reads to a replica that is not there."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"


@override_settings(DATABASE_ROUTERS=["tests.integration.test_enqueue.Elsewhere"])
def test_reads_go_to_the_primary_whatever_the_router_says() -> None:
    """F83"""
    handle = add.enqueue(1)
    assert handle.get().payload == {"a": 1}


@pytest.mark.parametrize(
    ("call", "way_out"),
    [
        (lambda: add.enqueue(1), r"await aenqueue\(…\)"),
        (lambda: enqueue_many([add.prepare(1)]), r"await aenqueue_many\(…\)"),
    ],
)
def test_in_a_coroutine_the_error_names_the_way_out(call: Callable[[], Any], way_out: str) -> None:
    """F133"""

    async def view() -> None:
        call()

    with pytest.raises(SynchronousOnlyOperation, match=way_out):
        asyncio.run(view())


@pytest.mark.parametrize("call", [lambda: add.enqueue(1), lambda: enqueue_many([add.prepare(1)])])
def test_before_migrate_the_error_names_the_database_and_the_way_out(call: Callable[[], Any]) -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL search_path TO pg_temp")
        with (
            pytest.raises(
                SchemaError, match=r"alias 'default'.*INSTALLED_APPS.*`manage\.py migrate --database default`"
            ),
            transaction.atomic(),
        ):
            call()
        transaction.set_rollback(True)


def test_aenqueue_is_part_of_the_callers_transaction_and_checks_the_same() -> None:
    async def view() -> None:
        await add.aenqueue(1)
        with pytest.raises(PayloadTypeError, match=r"^payload\.c"):
            await aenqueue("add", {"a": 1, "c": 2})
        with pytest.raises(PayloadTypeError, match=r"^payload\.b"):
            await add.using(priority=1).aenqueue(1, b=set())  # type: ignore[arg-type]

    with transaction.atomic():
        async_to_sync(view)()
        assert the_job().payload == {"a": 1}
        transaction.set_rollback(True)
    assert not Job.objects.exists()


@override_settings(PGJOBS={"NOTIFY": False})
def test_without_notify_nothing_is_sent(transactional_db: None, connect: Callable[..., Any]) -> None:
    """F45"""
    listener = connect()
    listener.execute("LISTEN pgjobs")
    listener.execute("SELECT pg_advisory_lock_shared(b.class, b.id) FROM pgjobs_bell() b")
    add.enqueue(1)
    enqueue_many([add.prepare(1), add.using(dedupe_key="k").prepare(1)])
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('pgjobs', 'the end')")
    heard = []
    for notification in listener.notifies(timeout=20):
        heard.append(notification.payload)
        if notification.payload == "the end":
            break
    assert heard == ["the end"]
