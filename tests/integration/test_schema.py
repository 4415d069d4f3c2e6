"""The schema: what the table refuses, what its defaults are, what the migrations install."""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.test import override_settings

import pgjobs
from pgjobs import sql, store
from pgjobs.models import ArchivedJob, Attempt
from tests.conftest import Connect
from tests.factories import JobFactory
from tests.rows import columns, database_now

pytestmark = pytest.mark.django_db

SQL = Path(sql.__file__).parent
MIGRATIONS = Path(pgjobs.__file__).parent / "migrations"


def rows(statement: str, *params: object) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, params or None)
        return cursor.fetchall() if cursor.description else []


# Constraints ----------------------------------------------------------------------------------------------------------

LEASE = "lease = 1, reserved_by = 'w', reserved_until = now()"
FINISHED = "finished_at = now()"

REFUSED = [
    ("pgjobs_job_status", f"status = 'running', {FINISHED}"),
    ("pgjobs_job_status", "status = ''"),
    ("pgjobs_job_reserved_has_lease", "status = 'reserved'"),
    ("pgjobs_job_reserved_has_lease", "status = 'reserved', lease = 1, reserved_by = 'w'"),
    ("pgjobs_job_reserved_has_lease", "status = 'reserved', lease = 1, reserved_until = now()"),
    ("pgjobs_job_reserved_has_lease", "status = 'reserved', reserved_by = 'w', reserved_until = now()"),
    ("pgjobs_job_reserved_has_lease", LEASE),
    ("pgjobs_job_reserved_has_lease", "lease = 1"),
    ("pgjobs_job_reserved_has_lease", "reserved_by = 'w'"),
    ("pgjobs_job_reserved_has_lease", "reserved_until = now()"),
    ("pgjobs_job_reserved_has_lease", f"status = 'done', {FINISHED}, {LEASE}"),
    ("pgjobs_job_final_has_finished_at", FINISHED),
    ("pgjobs_job_final_has_finished_at", f"status = 'reserved', {LEASE}, {FINISHED}"),
    *[
        ("pgjobs_job_final_has_finished_at", f"status = '{status}'")
        for status in ("done", "failed", "dead", "cancelled")
    ],
    ("pgjobs_job_attempts", "attempts = -1"),
    ("pgjobs_job_max_attempts", "max_attempts = 0"),
    ("pgjobs_job_priority", "priority = 101"),
    ("pgjobs_job_priority", "priority = -101"),
    ("pgjobs_job_run_after", "run_after = 'infinity'"),
    ("pgjobs_job_run_after", "run_after = '10000-01-01'"),
    ("pgjobs_job_expires_at", "expires_at = '-infinity'"),
    ("pgjobs_job_timeout", "timeout = '0'"),
    ("pgjobs_job_timeout", "timeout = '-1 second'"),
    ("pgjobs_job_payload_is_object", "payload = '[]'"),
    ("pgjobs_job_payload_is_object", "payload = 'null'"),
    ("pgjobs_job_payload_is_object", "payload = '1'"),
    ("pgjobs_job_kind_length", "kind = ''"),
    ("pgjobs_job_kind_length", "kind = repeat('ü', 128)"),
    ("pgjobs_job_queue_length", "queue = ''"),
    ("pgjobs_job_queue_length", "queue = repeat('x', 256)"),
    *[
        (f"pgjobs_job_{column}", f"{column} = '{value}'")
        for column in ("run_after", "expires_at")
        for value in ("infinity", "-infinity", "0044-03-15 BC", "10000-01-01")
    ],
    ("pgjobs_job_dedupe_key_length", "dedupe_key = ''"),
    ("pgjobs_job_dedupe_key_length", "dedupe_key = repeat('x', 2001)"),
]


@pytest.mark.parametrize(("constraint", "change"), REFUSED)
def test_a_broken_state_is_refused(constraint: str, change: str) -> None:
    """F141"""
    JobFactory()
    if constraint == "pgjobs_job_status":  # an unknown one is neither live nor final: that is told first
        constraint = "pgjobs_job_final_has_finished_at"
    with pytest.raises(IntegrityError, match=f'"{constraint}"'), transaction.atomic():
        rows(f"UPDATE pgjobs_job SET {change}")  # noqa: S608


@pytest.mark.parametrize(
    "change",
    [
        f"status = 'reserved', {LEASE}",
        *[f"status = '{status}', {FINISHED}" for status in ("done", "failed", "dead", "cancelled")],
        "priority = 100", "priority = -100", "attempts = 40000, max_attempts = 2000000000", "timeout = NULL",
        "kind = repeat('x', 255)", "queue = repeat('ü', 127)", "dedupe_key = repeat('x', 2000)", "dedupe_key = NULL",
        "payload = '{\"a\": null}'", "timeout = '1 microsecond'", "timeout = '100 years'", "worker = 'w'",
    ],
)  # fmt: skip
def test_a_state_that_can_be_is_taken(change: str) -> None:
    JobFactory()
    rows(f"UPDATE pgjobs_job SET {change}")  # noqa: S608


def test_every_constraint_is_in_the_table_above() -> None:
    checks = rows("SELECT conname FROM pg_constraint WHERE conrelid = 'pgjobs_job'::regclass AND contype = 'c'")
    assert {name for (name,) in checks} == {name for name, _ in REFUSED}


@pytest.mark.parametrize(
    "column", ["kind", "queue", "payload", "status", "priority", "run_after", "attempts", "max_attempts"]
)
def test_null_is_refused(column: str) -> None:
    JobFactory()
    with pytest.raises(IntegrityError, match="not-null"), transaction.atomic():
        rows(f"UPDATE pgjobs_job SET {column} = NULL")  # noqa: S608


def test_the_longest_key_of_the_longest_kind_fits_into_its_index() -> None:
    """Also when nothing compresses: a B-tree entry holds 2,704 bytes."""
    for key in ("md5(n::text)", "encode(sha512(n::text::bytea), 'base64')"):
        rows(
            "INSERT INTO pgjobs_job (kind, dedupe_key) SELECT left(k, 255), left(k, 2000) FROM"  # noqa: S608
            f" (SELECT string_agg(replace({key}, E'\\n', ''), '') k FROM generate_series(1, 200) n) s"
        )


# Defaults -------------------------------------------------------------------------------------------------------------


def test_a_plain_insert_is_a_valid_enqueue() -> None:
    before = database_now()
    [(id_,)] = rows("INSERT INTO pgjobs_job (kind, payload) VALUES ('send_report', '{}') RETURNING id")
    row = columns(id_)
    after = database_now()
    for name in ("run_after", "created_at", "updated_at"):
        assert before <= row[name] <= after, "statement_timestamp(), not the start of the transaction (F93)"
    expected = {
        "kind": "send_report", "queue": "default", "payload": {}, "priority": 0, "status": "pending", "attempts": 0,
        "max_attempts": 10, "timeout": dt.timedelta(minutes=5), "worker_ids": [], "refunds": 0, "snoozes": 0, "lost": 0,
        "suspect": False,
    }  # fmt: skip
    given = set(expected) | {"id", "run_after", "created_at", "updated_at"}
    assert {name: value for name, value in row.items() if name not in given} == dict.fromkeys(set(row) - given)
    assert {name: row[name] for name in expected} == expected


def test_kind_alone_is_enough_and_a_default_is_that_of_enqueue() -> None:
    [(by_hand,)] = rows("INSERT INTO pgjobs_job (kind) VALUES ('x') RETURNING id")
    [(called,)] = rows("SELECT id FROM pgjobs_enqueue('x')")
    times = {"id", "run_after", "created_at", "updated_at"}
    assert {k: v for k, v in columns(by_hand).items() if k not in times} == {
        k: v for k, v in columns(called).items() if k not in times
    }


def test_updated_at_is_kept_for_those_who_write_by_hand_and_left_to_those_who_set_it() -> None:
    job = JobFactory()
    before = columns(job.pk)["updated_at"]
    rows("UPDATE pgjobs_job SET priority = 5")
    after = columns(job.pk)["updated_at"]
    assert after > before
    rows("UPDATE pgjobs_job SET priority = 6, updated_at = '2020-01-01T00:00Z'")
    assert columns(job.pk)["updated_at"] == dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


def test_ids_and_counters_beyond_32_bits() -> None:
    """F81"""
    [(sequence,)] = rows("SELECT pg_get_serial_sequence('pgjobs_job', 'id')")
    rows(f"ALTER SEQUENCE {sequence} RESTART WITH {2**31 + 5}")
    first, second, third = (
        rows("SELECT id FROM pgjobs_enqueue('x', p_parent_id => %s)", 2**33)[0][0] for _ in range(3)
    )
    assert first == 2**31 + 5
    claimed = store.claim(connection, 2, "w", queues=None, exclude_queues=(), kinds=None, lease=15).jobs
    assert [job.id for job in claimed] == [first, second]
    assert store.cancel(connection, [first, second, third]) == {
        first: "requested",
        second: "requested",
        third: "cancelled",
    }
    leases = [job.lease for job in claimed]
    assert store.retry(connection, first, leases[0], error="boom") == "cancelled"
    assert store.finish_many(connection, [second], leases[1:], {second: "1"}, {second: "note"}) == {}
    assert columns(second)["result"] == 1
    assert store.requeue(connection, [first, third]) == {first: ("requeued", None), third: ("requeued", None)}
    assert store.prune(connection, [second]) == {second: "pruned"}
    [(many, _, _)] = store.enqueue_many(connection, [store.NewJob("x", "{}", "q", 0, 1, None)])
    assert many > 2**31


# Tables and indexes ----------------------------------------------------------------------------------------------------


def test_the_indexes_are_few_partial_and_named_after_what_they_serve() -> None:
    """F65"""
    found = dict(rows("SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'pgjobs_job'"))
    shapes = {name: re.sub(r"^.* USING btree ", "", shape) for name, shape in found.items()}
    assert shapes == {
        "pgjobs_job_pkey": "(id)",
        "pgjobs_claim": "(queue, priority DESC, run_after, id) WHERE (status = 'pending'::text)",
        "pgjobs_dedupe": "(kind, dedupe_key) WHERE ((dedupe_key IS NOT NULL)"
        " AND (status = ANY (ARRAY['pending'::text, 'reserved'::text])))",
        "pgjobs_reserved": "(reserved_by) WHERE (status = 'reserved'::text)",
        "pgjobs_finished": "(kind, status, finished_at) WHERE (finished_at IS NOT NULL)",
        "pgjobs_prune": "(status, finished_at) WHERE (finished_at IS NOT NULL)",
        "pgjobs_suspects": "(id) WHERE ((status = 'pending'::text) AND suspect)",
        "pgjobs_expire": "(expires_at) WHERE ((expires_at IS NOT NULL) AND (status = 'pending'::text))",
    }
    assert rows("SELECT count(*) FROM pg_index WHERE NOT indisvalid") == [(0,)]


def test_a_queues_table_is_vacuumed_early_and_has_room_on_each_page() -> None:
    """F64"""
    [(options,)] = rows("SELECT reloptions FROM pg_class WHERE oid = 'pgjobs_job'::regclass")
    settings = dict(option.split("=") for option in options)
    assert float(settings["autovacuum_vacuum_scale_factor"]) <= 0.02
    assert float(settings["autovacuum_analyze_scale_factor"]) <= 0.05
    assert 50 <= int(settings["fillfactor"]) <= 90
    assert settings.keys() >= {"autovacuum_vacuum_threshold", "autovacuum_vacuum_insert_scale_factor"}


def test_no_foreign_key_leads_away_from_a_job_or_to_it() -> None:
    """F72"""
    assert (
        rows(
            "SELECT conname FROM pg_constraint WHERE contype = 'f'"
            " AND ('pgjobs_job'::regclass IN (conrelid, confrelid) OR conrelid = 'pgjobs_attempt'::regclass)"
        )
        == []
    )


def test_numbers_that_grow_are_bigint() -> None:
    """F81"""
    narrow = rows(
        "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
        " AND table_name LIKE 'pgjobs\\_%' AND data_type IN ('integer', 'smallint')"
    )
    small = {
        "priority",
        "refunds",
        "snoozes",
        "lost",
        "attempts",
        "max_attempts",
        "attempt",
        "pid",
        "threads",
        "running",
        "errors",
    }
    assert {column for _, column in narrow} <= small


def test_times_have_a_zone() -> None:
    assert (
        rows(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
            " AND table_name LIKE 'pgjobs\\_%' AND data_type LIKE 'timestamp%' AND data_type <> 'timestamp with time zone'"
        )
        == []
    )


# Functions ------------------------------------------------------------------------------------------------------------


def test_migrations_install_the_newest_text() -> None:
    latest = sorted(MIGRATIONS.glob("*_functions.sql"))[-1]
    assert latest.read_text(encoding="utf-8") == sql.script(), "python -m pgjobs.sql > " + latest.name


def installed(schema: str = "public") -> dict[str, str]:
    found = rows(
        "SELECT p.oid::regprocedure::text, pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace = %s::regnamespace"
        " AND p.proname LIKE 'pgjobs\\_%%'",
        schema,
    )
    return dict(found)


def test_what_is_installed_is_that_text() -> None:
    """Also if somebody replaced a function by hand, or a migration forgot to drop an old one."""
    before = installed()
    rows(sql.script())
    assert installed() == before
    assert len(before) == sum(len(re.findall(r"CREATE OR REPLACE FUNCTION", sql.text(name))) for name in sql.FUNCTIONS)


def test_each_file_is_listed_and_named_by_its_verb() -> None:
    assert {path.stem for path in SQL.glob("*.sql")} == set(sql.FUNCTIONS)
    for name in sql.FUNCTIONS:
        if not name.endswith("triggers"):
            assert f"FUNCTION pgjobs_{name}(" in sql.text(name)


@pytest.mark.parametrize("name", sql.FUNCTIONS)
def test_each_file_opens_with_what_a_reader_needs(name: str) -> None:
    head = sql.text(name).split("\n\n" if name.endswith("triggers") else "CREATE ", 1)[0].splitlines()
    assert len(head) >= 4
    assert all(line.startswith("-- ") for line in head)
    assert any(line.startswith("-- Index: ") for line in head)
    assert any(line.startswith("-- Returns") for line in head)


def test_no_function_is_overloaded() -> None:
    """Two candidates would make calls ambiguous."""
    names = [signature.split("(")[0] for signature in installed()]
    assert len(names) == len(set(names))


def test_no_schema_is_written_into_the_text_and_statuses_are_literals() -> None:
    for name in sql.FUNCTIONS:
        text = sql.text(name)
        assert "public." not in text
        assert "SECURITY DEFINER" not in text


def test_functions_remember_their_schema() -> None:
    """But the formula and the triggers that touch no table."""
    free = {name for name, text in installed().items() if "SET search_path TO" not in text}
    assert {name.split("(")[0] for name in free} == {
        "pgjobs_next_run_after",
        "pgjobs_job_inserted",
        "pgjobs_job_touched",
    }


PUBLIC = {
    "pgjobs_enqueue": "p_kind text, p_payload jsonb, p_run_after timestamp with time zone, p_priority integer,"
    " p_dedupe_key text, p_max_attempts integer, p_timeout interval, p_queue text, p_on_conflict text,"
    " p_expires_at timestamp with time zone, p_meta jsonb",
    "pgjobs_claim": "p_limit integer, p_worker text, p_queues text[], p_lease interval, p_kinds text[], p_exclude_queues text[]",
    "pgjobs_finish": "p_id bigint, p_lease bigint, p_success boolean, p_error text, p_result jsonb",
    "pgjobs_requeue_timed_out": "p_batch integer",
    "pgjobs_next_run_after": "p_attempt integer",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_functions_take_what_the_contract_says(name: str) -> None:
    """A later parameter goes to the end, with a default."""
    [(arguments,)] = rows("SELECT pg_get_function_identity_arguments(p.oid) FROM pg_proc p WHERE p.proname = %s", name)
    assert arguments.startswith(PUBLIC[name])


def test_a_worker_in_any_language_needs_no_more_than_the_five() -> None:
    """The contract's own calls."""
    [(id_, created, action)] = rows(
        "SELECT id, created, action FROM pgjobs_enqueue(p_kind => 'send_email', p_payload => '{\"to\": \"user@example.com\"}',"
        " p_run_after => NULL, p_priority => 10, p_dedupe_key => 'welcome-42', p_max_attempts => 8,"
        " p_timeout => interval '45 seconds', p_queue => 'default', p_on_conflict => 'keep', p_expires_at => NULL,"
        " p_meta => NULL)"
    )
    assert (created, action) == (True, "created")
    [(claimed, lease, payload)] = rows(
        "SELECT id, lease, payload ->> 'to' FROM pgjobs_claim(p_limit => 32, p_worker => 'w-1', p_queues => ARRAY['default'],"
        " p_lease => NULL, p_kinds => NULL, p_exclude_queues => NULL)"
    )
    assert (claimed, payload) == (id_, "user@example.com")
    finish = "SELECT pgjobs_finish(p_id => %s, p_lease => %s, p_success => false, p_error => 'boom', p_result => NULL)"
    assert rows(finish, id_, lease) == [("pending",)]
    assert rows(finish, id_, lease) == [(None,)]
    assert rows("SELECT pgjobs_requeue_timed_out(p_batch => 1000)") == [(0,)]
    assert rows("SELECT pgjobs_next_run_after(p_attempt => 3) > now()") == [(True,)]


# Migrations -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"DEFAULT_AUTO_FIELD": "django.db.models.AutoField"},
        {"DEFAULT_AUTO_FIELD": "django.db.models.SmallAutoField"},
        {"USE_TZ": False},
        {"LANGUAGE_CODE": "de", "USE_I18N": True},
        {"TIME_ZONE": "Asia/Kathmandu"},
        {"PGJOBS": {"MAX_ATTEMPTS": 3, "TIMEOUT": None, "QUEUES": ["a"]}},
    ],
)
def test_no_setting_of_a_project_makes_a_migration(
    settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """F80"""
    with override_settings(**settings):
        call_command("makemigrations", "pgjobs", check=True, dry_run=True)
    assert "No changes detected" in capsys.readouterr().out


SCHEMA = "Other-Queue"


@pytest.fixture
def elsewhere(transactional_db: None, connect: Connect) -> Iterator[MigrationExecutor]:
    """The default alias leads into an empty schema of its own, by its search path."""
    admin, usual = connect(), connections["default"]
    admin.execute(f'CREATE SCHEMA "{SCHEMA}"')
    wrapper = usual.copy("default")
    wrapper.settings_dict["OPTIONS"] = usual.settings_dict["OPTIONS"] | {"options": f'-c search_path="{SCHEMA}"'}
    connections["default"] = wrapper
    try:
        yield MigrationExecutor(wrapper)
    finally:
        connections["default"] = usual
        wrapper.close()
        admin.execute(f'DROP SCHEMA "{SCHEMA}" CASCADE')


def migrate(name: str | None) -> None:
    executor = MigrationExecutor(connections["default"])
    executor.migrate([("pgjobs", name)])


def things(connect: Connect) -> list[Any]:
    """What there is in the other schema, but for Django's own table."""
    return (
        connect()
        .execute(
            "SELECT relname::text FROM pg_class WHERE relnamespace = %(s)s::regnamespace AND relname LIKE 'pgjobs%%'"
            " UNION ALL SELECT proname::text FROM pg_proc WHERE pronamespace = %(s)s::regnamespace ORDER BY 1",
            {"s": f'"{SCHEMA}"'},
        )
        .fetchall()
    )


def test_migrations_go_forwards_backwards_and_forwards_again(elsewhere: MigrationExecutor, connect: Connect) -> None:
    [leaf] = [name for app, name in elsewhere.loader.graph.leaf_nodes() if app == "pgjobs"]
    migrate(leaf)
    first = things(connect)
    assert ("pgjobs_job",) in first
    assert ("pgjobs_claim",) in first
    migrate(None)
    assert things(connect) == []
    migrate(leaf)
    assert things(connect) == first


def test_in_a_schema_of_its_own_qualified_calls_work_from_any_session(
    elsewhere: MigrationExecutor, connect: Connect
) -> None:
    """Tables and functions are found, whatever the caller's search path."""
    [leaf] = [name for app, name in elsewhere.loader.graph.leaf_nodes() if app == "pgjobs"]
    migrate(leaf)
    assert store.schema_problem(connections["default"]) is None
    session = connect(options="-c search_path=")

    def run(statement: str, *params: object) -> list[Any]:
        cursor = session.execute(statement.replace("@", f'"{SCHEMA}".'), params or None)
        return cursor.fetchall() if cursor.description else []

    run("INSERT INTO @pgjobs_job (kind, payload) VALUES ('by_hand', '{}')")
    run("SELECT * FROM @pgjobs_enqueue('called', p_dedupe_key => 'k')")
    run('SELECT * FROM @pgjobs_enqueue_many(\'[{"k": "many", "p": {}}]\')')
    run("UPDATE @pgjobs_job SET priority = 3 WHERE kind = 'by_hand'")
    claimed = run("SELECT id, lease, kind FROM @pgjobs_claim(10, 'w')")
    assert [kind for _, _, kind in claimed] == ["by_hand", "called", "many"]
    run("SELECT * FROM @pgjobs_enqueue('called', p_dedupe_key => 'k', p_on_conflict => 'rerun')")
    finish = "SELECT @pgjobs_finish(%s, %s, {}, 'boom')"
    assert run(finish.format("false"), *claimed[0][:2]) == [("pending",)]
    assert run(finish.format("true"), *claimed[1][:2]) == [("done",)]
    assert run("SELECT count(*) FROM @pgjobs_job WHERE kind = 'called' AND status = 'pending'") == [(1,)], "the wish"
    run("UPDATE @pgjobs_job SET reserved_until = now() - interval '1 hour' WHERE id = %s", claimed[2][0])
    assert run("SELECT @pgjobs_requeue_timed_out()") == [(1,)]
    run("SELECT * FROM @pgjobs_beat('w', 'h', 1, '{}', '{}', '{}', 1, 0, false, '{}', '{}', '1 min')")
    assert run("SELECT outcome FROM @pgjobs_cancel(%s)", [claimed[0][0]]) == [("cancelled",)]
    assert run("SELECT @pgjobs_prune_old('cancelled', '0')") == [(1,)]
    assert run("SELECT @pgjobs_archive('done', '0')") == [(1,)]
    assert run("SELECT count(*) FROM @pgjobs_claim(1, 'w', p_kinds => '{none}')") == [(0,)]
    assert connect().execute("SELECT count(*) FROM pgjobs_job").fetchone() == (0,), "nothing went to the usual schema"


def test_a_search_path_of_many_is_pinned_to_the_schema_of_the_tables() -> None:
    """ "$user" would mean something else for each caller."""
    [(path,)] = rows("SELECT DISTINCT unnest(proconfig) FROM pg_proc WHERE proname = 'pgjobs_enqueue'")
    assert path == "search_path=public"


# A role with no more than it needs -------------------------------------------------------------------------------------


@pytest.fixture
def worker_role(transactional_db: None, connect: Connect) -> Iterator[Callable[[], psycopg.Connection[Any]]]:
    """Connects as a role that may read and write rows, and nothing else."""
    admin, name_of_role = connect(), f"pgjobs_test_{os.getpid()}"  # roles belong to the whole server
    admin.execute(f"DROP ROLE IF EXISTS {name_of_role}")
    admin.execute(f"CREATE ROLE {name_of_role} NOSUPERUSER NOINHERIT")
    admin.execute(f"GRANT USAGE ON SCHEMA public TO {name_of_role}")
    for (name,) in admin.execute(
        "SELECT relname FROM pg_class WHERE relname LIKE 'pgjobs\\_%' AND relkind IN ('r', 'p')"
    ).fetchall():
        admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name} TO {name_of_role}")
    for (name,) in admin.execute(
        "SELECT relname FROM pg_class WHERE relname LIKE 'pgjobs\\_%' AND relkind = 'S'"
    ).fetchall():
        admin.execute(f"GRANT USAGE ON SEQUENCE {name} TO {name_of_role}")

    def as_role() -> psycopg.Connection[Any]:
        session = connect()
        session.execute(f"SET SESSION AUTHORIZATION {name_of_role}")
        return session

    yield as_role
    admin.execute(f"DROP OWNED BY {name_of_role}")
    admin.execute(f"DROP ROLE {name_of_role}")


def test_every_verb_works_for_a_role_that_only_reads_and_writes_rows(
    worker_role: Callable[[], psycopg.Connection[Any]],
) -> None:
    """F155: no extension, no superuser, no ownership."""
    role = worker_role()

    def run(statement: str, *params: object) -> list[Any]:
        return role.execute(statement, params or None).fetchall()

    ids = [run("SELECT id FROM pgjobs_enqueue('x', p_dedupe_key => %s)", f"k{n}")[0][0] for n in range(8)]
    run('SELECT * FROM pgjobs_enqueue_many(\'[{"k": "many", "p": {}, "d": 60}]\')')
    jobs = dict(run("SELECT id, lease FROM pgjobs_claim(7, 'w')"))
    lease = next(iter(jobs.values()))
    assert run("SELECT action FROM pgjobs_enqueue('x', p_dedupe_key => 'k0', p_on_conflict => 'rerun')") == [("rerun",)]
    assert run("SELECT pgjobs_finish(%s, %s, true)", ids[0], lease) == [("done",)]
    assert run("SELECT pgjobs_retry(%s, %s, 'boom')", ids[1], lease) == [("pending",)]
    assert run("SELECT pgjobs_bury(%s, %s, 'boom')", ids[2], lease) == [("dead",)]
    assert run("SELECT pgjobs_fail(%s, %s, 'never')", ids[3], lease) == [("failed",)]
    assert run("SELECT pgjobs_snooze(%s, %s, now())", ids[4], lease) == [("pending",)]
    assert run("SELECT outcome FROM pgjobs_release(%s, %s, true)", [ids[5]], [lease]) == [("pending",)]
    assert run("SELECT pgjobs_cancel_held(%s, %s, 'enough')", ids[6], lease) == [("cancelled",)]
    assert run("SELECT outcome FROM pgjobs_cancel(%s)", [ids[7]]) == [("cancelled",)]
    assert run("SELECT outcome FROM pgjobs_requeue(%s)", [ids[2]]) == [("requeued",)]
    assert run("SELECT outcome FROM pgjobs_reschedule(%s, p_priority => 5)", [ids[1]]) == [("rescheduled",)]
    assert run("SELECT outcome FROM pgjobs_bury_pending(%s)", [ids[1]]) == [("buried",)]
    assert run("SELECT outcome FROM pgjobs_prune(%s)", [ids[1]]) == [("pruned",)]
    for statement in (
        "SELECT pgjobs_pause('queue', 'q')",
        "SELECT pgjobs_resume('queue', 'q')",
        "SELECT pgjobs_expire()",
        "SELECT pgjobs_requeue_timed_out()",
        "SELECT * FROM pgjobs_beat('w', 'h', 1, '{}', '{}', '{}', 1, 0, false, '{}', '{}', '1 min')",
        "SELECT pgjobs_archive('done', '0')",
        "SELECT pgjobs_prune_old('cancelled', '0')",
    ):
        run(statement)


def test_such_a_role_can_change_neither_tables_nor_functions(
    worker_role: Callable[[], psycopg.Connection[Any]],
) -> None:
    role = worker_role()
    for statement in (
        "TRUNCATE pgjobs_job",
        "DROP FUNCTION pgjobs_expire",
        "ALTER TABLE pgjobs_job DISABLE TRIGGER USER",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            role.execute(statement)


def test_flush_empties_every_table(transactional_db: None) -> None:
    """Also the archive, whose table SQL makes."""
    JobFactory(done=True)
    rows("SELECT pgjobs_archive('done', '0')")
    JobFactory(dead=True)
    call_command("flush", interactive=False, verbosity=0)
    assert not ArchivedJob.objects.exists()
    assert not Attempt.objects.exists()
