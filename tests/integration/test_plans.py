"""What each statement reads on a large table: 300 k finished, 100 k due, 50 k of the highest priority that are not due.

F63, F66, F67: whatever the planner believes, a statement reads what it needs, and nothing of the heap in front of it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.integration.plans import DUE, FINISHED, FUTURE, RESERVED, Reading, loaded, reading

pytestmark = pytest.mark.django_db

HELD = 800
"""Reserved jobs; those whose lease divides by 8 are held by w-0."""


@pytest.fixture(scope="module", autouse=True)
def _full_table(django_db_setup: None) -> Iterator[None]:
    with loaded(
        FINISHED.format(rows=300_000),
        RESERVED.format(rows=HELD),
        FUTURE.format(rows=50_000),
        FUTURE.format(rows=500).replace("'queue-' || n % 20", "'future'"),
        DUE.format(rows=100_000),
        "ANALYZE pgjobs_job",
    ):
        yield


BELIEFS = {
    "what is": (),
    "an empty table": (
        "UPDATE pg_class SET relpages = 1, reltuples = 0 WHERE oid = 'pgjobs_job'::regclass"
        " OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'pgjobs_job'::regclass)",
        "DELETE FROM pg_statistic WHERE starelid = 'pgjobs_job'::regclass",
    ),
    "a full table without a pending job": (
        "DELETE FROM pg_statistic WHERE starelid = 'pgjobs_job'::regclass",
        "UPDATE pg_class SET reltuples = 0 WHERE oid IN ('pgjobs_claim'::regclass, 'pgjobs_dedupe'::regclass,"
        " 'pgjobs_reserved'::regclass)",
        "UPDATE pg_class SET reltuples = 5000000 WHERE oid = 'pgjobs_job'::regclass",
    ),
    "generic plans": ("SET LOCAL plan_cache_mode = force_generic_plan",),
    "custom plans": ("SET LOCAL plan_cache_mode = force_custom_plan",),
    "random pages are cheap": ("SET LOCAL random_page_cost = 1", "SET LOCAL effective_cache_size = '64GB'"),
    "random pages are dear": ("SET LOCAL random_page_cost = 100", "SET LOCAL effective_cache_size = '8MB'"),
}


@pytest.fixture(params=BELIEFS)
def _belief(request: pytest.FixtureRequest, db: None) -> None:
    """What the planner believes; undone with the test's transaction."""
    with connection.cursor() as cursor:
        for statement in BELIEFS[request.param]:
            cursor.execute(statement)


believing_anything = pytest.mark.usefixtures("_belief")


def only(read: Reading, **limits: int) -> None:
    """Nothing but these indexes was walked, each over at most so many entries; ``buffers`` is a limit too.

    The limits are several times what is needed, since tests that ran before leave dead rows behind; a walk over a whole
    index would read 50,000 entries at least (800 of the reserved).
    """
    buffers = limits.pop("buffers")
    assert read.seq_scans == 0, read
    assert read.entries.keys() <= limits.keys(), read
    for name, entries in read.entries.items():
        assert entries <= limits[name], read
    assert read.buffers <= buffers, read


def claim(limit: int, more: str = "") -> Reading:
    return reading(f"SELECT * FROM pgjobs_claim({limit}, 'w', p_lease => '15 s'{more})")  # noqa: S608


@believing_anything
def test_claim_from_all_queues_passes_over_what_is_not_due() -> None:
    read = claim(10)
    assert read.rows == 10
    # Of each of 20 queues: its head twice, the due range of the highest priority (none), the next priority, ten due.
    only(read, pgjobs_job_pkey=1000, pgjobs_claim=2000, buffers=5000)


@believing_anything
def test_claim_from_one_queue() -> None:
    read = claim(100, ", p_queues => ARRAY['queue-7']")
    assert read.rows == 100
    only(read, pgjobs_job_pkey=1000, pgjobs_claim=1500, buffers=5000)


@believing_anything
def test_claim_of_one_kind_in_ten() -> None:
    read = claim(10, ", p_queues => ARRAY['queue-7'], p_kinds => ARRAY['kind-7']")
    assert read.rows == 10
    only(read, pgjobs_job_pkey=1000, pgjobs_claim=1500, buffers=3000)


@believing_anything
def test_claim_without_what_is_excluded() -> None:
    read = claim(10, ", p_exclude_queues => ARRAY['queue-0', 'queue-1', 'queue-2']")
    assert read.rows == 10
    only(read, pgjobs_job_pkey=1000, pgjobs_claim=2000, buffers=5000)


def test_claim_passes_over_a_paused_queue() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pgjobs_pause('queue', 'queue-' || n) FROM generate_series(0, 18) n")
    read = claim(10)
    assert read.rows == 10
    only(read, pgjobs_job_pkey=1000, pgjobs_claim=1500, buffers=3000)


GOING_ON = "SELECT id, meta FROM pgjobs_claim_many(%s, 'w', NULL, '15 s', ARRAY[%s], NULL, NULL, %s::jsonb)"


def known(kind: str) -> str:
    """What a claim that reads everything from the beginning answers for the next one."""
    with connection.cursor() as cursor:
        cursor.execute(GOING_ON, [10, kind, None])
        text: str = cursor.fetchall()[0][1]
    return text


@believing_anything
def test_claim_that_goes_on_does_not_walk_what_it_cannot_run() -> None:
    """All of it lies in front: queues by queues, the due ones and those that are not."""
    read = reading(GOING_ON, 10, "stranger", known("stranger"))
    assert read.rows == 1  # what the claim saw
    only(read, pgjobs_claim=1500, buffers=3000)


@believing_anything
def test_claim_that_goes_on_finds_what_it_wants_behind_a_mountain() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO pgjobs_job (kind, queue, priority, run_after)"
            " SELECT 'rare', 'queue-' || n % 20, 0, now() + n * interval '1 microsecond' FROM generate_series(1, 100) n"
        )
    read = reading(GOING_ON, 50, "rare", known("rare"))
    assert read.rows == 51
    only(read, pgjobs_job_pkey=1000, pgjobs_claim=2500, buffers=5000)


def test_claim_of_many_from_all_queues_reads_few_more() -> None:
    read = claim(1000)
    assert read.rows == 1000
    only(read, pgjobs_job_pkey=3000, pgjobs_claim=6000, buffers=25_000)


@believing_anything
def test_claim_where_nothing_is_due() -> None:
    read = claim(10, ", p_queues => ARRAY['future']")
    assert read.rows == 0
    only(read, pgjobs_job_pkey=1000, pgjobs_claim=800, buffers=1500)


@believing_anything
def test_claim_where_no_queue_is() -> None:
    read = claim(10, ", p_queues => ARRAY['nowhere']")
    assert read.rows == 0
    only(read, pgjobs_job_pkey=1000, pgjobs_claim=800, buffers=1500)


PAIRS = "ARRAY(SELECT id FROM pgjobs_job WHERE status = 'reserved' AND reserved_by >= '' ORDER BY lease LIMIT 100)"


def pairs() -> tuple[list[int], list[int]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, lease FROM pgjobs_job WHERE status = 'reserved' AND reserved_by = 'w-0' ORDER BY id LIMIT 100"
        )
        found = cursor.fetchall()
    return [id_ for id_, _ in found], [lease for _, lease in found]


@believing_anything
@pytest.mark.parametrize(
    ("call", "buffers"),
    [
        ("pgjobs_finish_many(%s::bigint[], %s::bigint[])", 4000),
        ("pgjobs_heartbeat(%s::bigint[], %s::bigint[], '15 s')", 2500),
        ("pgjobs_release(%s::bigint[], %s::bigint[], true)", 5000),
    ],
)
def test_a_batch_of_a_holder_uses_the_primary_key(call: str, buffers: int) -> None:
    ids, leases = pairs()
    assert len(ids) == 100
    only(reading(f"SELECT * FROM {call}", ids, leases), pgjobs_job_pkey=900, buffers=buffers)  # noqa: S608


@believing_anything
@pytest.mark.parametrize(
    "call", ["pgjobs_finish_many(%s::bigint[], %s::bigint[])", "pgjobs_heartbeat(%s::bigint[], %s::bigint[], '15 s')"]
)
def test_so_does_a_batch_that_is_lost(call: str) -> None:
    ids, leases = pairs()
    only(reading(f"SELECT * FROM {call}", ids, [lease + 1 for lease in leases]), pgjobs_job_pkey=900, buffers=2500)  # noqa: S608


@believing_anything
@pytest.mark.parametrize(
    "call",
    [
        "pgjobs_finish(%s, %s, true)", "pgjobs_finish(%s, %s, false, 'boom')", "pgjobs_retry(%s, %s, 'boom')",
        "pgjobs_bury(%s, %s, 'boom')", "pgjobs_fail(%s, %s, 'never')", "pgjobs_snooze(%s, %s, now())",
        "pgjobs_cancel_held(%s, %s, 'enough')", "pgjobs_progress(%s, %s, '{}')", "pgjobs_still_owned(%s, %s)",
    ],
)  # fmt: skip
def test_one_write_of_a_holder_uses_the_primary_key(call: str) -> None:
    ids, leases = pairs()
    only(reading(f"SELECT * FROM {call}", ids[0], leases[0]), pgjobs_job_pkey=30, buffers=1000)  # noqa: S608


@believing_anything
@pytest.mark.parametrize("mode", ["keep", "replace"])
def test_enqueue_finds_the_holder_of_a_key(mode: str) -> None:
    """F35"""
    call = "SELECT * FROM pgjobs_enqueue('kind-3', p_dedupe_key => %s, p_on_conflict => %s)"
    found = reading(call, "due-3", mode)
    # The check of the unique index itself is one scan more.
    only(found, pgjobs_dedupe=10, pgjobs_job_pkey=10, buffers=1000)
    only(reading(call, "a new one", mode), pgjobs_dedupe=5, buffers=1000)


@believing_anything
def test_reap_reads_what_is_reserved() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET reserved_until = now() - interval '1 hour' WHERE status = 'reserved' AND lease <= 10"
        )
    read = reading("SELECT * FROM pgjobs_reap()")
    assert read.rows == 10
    only(read, pgjobs_reserved=4 * HELD, buffers=5000)


@believing_anything
def test_a_beat_reads_what_is_held_and_what_is_reserved() -> None:
    ids, leases = pairs()
    read = reading(
        "SELECT * FROM pgjobs_beat('w-0', 'h', 1, '{}', '{}', '{}', 4, 100, false, %s::bigint[], %s::bigint[], '15 s')",
        ids,
        leases,
    )
    only(read, pgjobs_job_pkey=900, pgjobs_reserved=6 * HELD, pgjobs_expire=100, pgjobs_suspects=100, buffers=8000)


@believing_anything
def test_expire_reads_what_expires() -> None:
    only(reading("SELECT pgjobs_expire()"), pgjobs_expire=100, buffers=500)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE pgjobs_job SET expires_at = now() - interval '1 hour' WHERE id IN"
            " (SELECT id FROM pgjobs_job WHERE status = 'pending' AND expires_at IS NOT NULL ORDER BY expires_at LIMIT 20)"
        )
    only(reading("SELECT pgjobs_expire(10)"), pgjobs_expire=150, buffers=1000)


@believing_anything
@pytest.mark.parametrize("call", ["pgjobs_prune_old('done', '7 days', 100)", "pgjobs_archive('done', '7 days', 100)"])
def test_retention_reads_a_slice_from_the_oldest(call: str) -> None:
    """F69"""
    only(reading(f"SELECT {call}"), pgjobs_prune=1500, buffers=5000)


@believing_anything
@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("pgjobs_cancel(%s::bigint[])", "pending"), ("pgjobs_bury_pending(%s::bigint[])", "pending"),
        ("pgjobs_reschedule(%s::bigint[], p_priority => 5)", "pending"), ("pgjobs_requeue(%s::bigint[])", "dead"),
        ("pgjobs_prune(%s::bigint[])", "dead"),
    ],
)  # fmt: skip
def test_an_operators_batch_uses_the_primary_key(call: str, status: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT id FROM pgjobs_job WHERE status = %s AND priority < 100 LIMIT 50", [status])
        ids = [id_ for (id_,) in cursor.fetchall()]
    read = reading(f"SELECT * FROM {call}", ids)  # noqa: S608
    assert read.rows == 50
    only(read, pgjobs_job_pkey=2000, pgjobs_dedupe=200, buffers=5000)


@believing_anything
def test_the_worker_that_died_is_found_by_its_name() -> None:
    read = reading("SELECT id FROM pgjobs_job WHERE status = 'reserved' AND reserved_by = %s", "w-0")
    assert read.rows == HELD // 8
    assert read.seq_scans == 0


def test_a_walk_over_a_whole_index_or_the_heap_is_noticed() -> None:
    """So that the tests above can fail."""
    with pytest.raises(AssertionError, match="seq_scans=1"):
        only(reading("SELECT count(*) FROM pgjobs_job WHERE status || '' = 'pending'"), buffers=10**9)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off")
    with pytest.raises(AssertionError, match=r"'pgjobs_claim': 1[0-9]{5}"):
        only(reading("SELECT count(*) FROM pgjobs_job WHERE status = 'pending'"), pgjobs_claim=2000, buffers=10**9)


@believing_anything
def test_run_now_with_a_key_reads_what_its_kind_finished_since() -> None:
    since = "now() - interval '9 days' + interval '299000 seconds'"  # a thousand have finished since
    read = reading(
        f"SELECT * FROM pgjobs_run_now(1, now(), 'k', {since}, 'kind-7', '{{}}', 0, 10, NULL, 'default', NULL)"  # noqa: S608
    )
    assert read.rows == 1
    # Who believes the table to be empty may take the index of the retention: then of all kinds, since then too.
    only(read, pgjobs_finished=1500, pgjobs_prune=5000, pgjobs_dedupe=50, buffers=3000)
