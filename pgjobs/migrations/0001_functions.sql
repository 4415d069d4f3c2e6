SELECT set_config('pgjobs.search_path', current_setting('search_path'), true),
       set_config('search_path', quote_ident(current_schema()), true);

-- When to try again: now + least(5 s · 2^attempt, 6 h) + 0…1 s.
-- p_attempt: the number of the attempt that failed. The exponent is clamped first, so that no number overflows.
-- Index: none.
-- Returns a time by the database's clock; another one for each row of a batch.
CREATE OR REPLACE FUNCTION pgjobs_next_run_after(p_attempt integer) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT clock_timestamp()
       + least(interval '5 seconds' * 2 ^ least(greatest(coalesce(p_attempt, 0), 0), 20), interval '6 hours')
       + random() * interval '1 second'
$$;

-- The advisory lock by which inserters see whether a worker sleeps: held (shared) in the session of each that does.
-- p_queue: one that it serves; NULL: it serves all.
-- Index: none.
-- Returns the lock's two keys, of which one is the table's oid, so that two schemas do not wake each other's workers. Two names may
-- share a lock: then somebody is told in vain.
CREATE OR REPLACE FUNCTION pgjobs_bell(p_queue text DEFAULT NULL, OUT class integer, OUT id integer)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT coalesce(hashtext(p_queue), 1885825898), ('pgjobs_job'::regclass::oid::bigint - 2147483648)::integer;
$$;

-- The fence: lock a job for a write by its holder, without ever waiting for somebody's open transaction.
-- p_id, p_lease: the job and the token that the claim returned.
-- Index: the primary key (status is not named on purpose: naming it would invite a walk over pgjobs_reserved).
-- Returns held (locked until the end of the transaction), busy (another transaction holds the row: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_hold(p_id bigint, p_lease bigint) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM 1 FROM pgjobs_job j WHERE j.id = p_id AND j.lease = p_lease FOR NO KEY UPDATE SKIP LOCKED;
  IF FOUND THEN RETURN 'held'; END IF;
  PERFORM 1 FROM pgjobs_job j WHERE j.id = p_id AND j.lease = p_lease;
  IF FOUND THEN RETURN 'busy'; END IF;
  RETURN 'lost';
END $$;

-- Whether a handler's job is still its worker's.
-- p_id, p_lease: the job and the token that the claim returned.
-- Index: the primary key.
-- Returns true while the lease is this one and has not lapsed.
CREATE OR REPLACE FUNCTION pgjobs_still_owned(p_id bigint, p_lease bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  SELECT EXISTS (SELECT FROM pgjobs_job j WHERE j.id = p_id AND j.lease = p_lease AND j.reserved_until > clock_timestamp())
$$;

-- enqueue: → pending; or, when a live job of the kind holds the dedupe key: keep it, replace it, or wish for a rerun.
-- NULL means the default of the table, but for p_timeout: NULL is no limit. p_on_conflict: keep, replace or rerun. p_schedule_id,
-- p_scheduled_for: of a tick.
-- Index: pgjobs_dedupe, when there is a key.
-- Returns the job (or the holder), whether it was created, and created, kept, replaced or rerun. Never nothing, and never
-- an error for a duplicate: when the holder ends in between, the insert is tried again.
CREATE OR REPLACE FUNCTION pgjobs_enqueue(
  p_kind text, p_payload jsonb DEFAULT '{}', p_run_after timestamptz DEFAULT NULL, p_priority integer DEFAULT NULL,
  p_dedupe_key text DEFAULT NULL, p_max_attempts integer DEFAULT NULL, p_timeout interval DEFAULT interval '5 minutes',
  p_queue text DEFAULT NULL, p_on_conflict text DEFAULT NULL, p_expires_at timestamptz DEFAULT NULL, p_meta jsonb DEFAULT NULL,
  p_parent_id bigint DEFAULT NULL, p_schedule_id bigint DEFAULT NULL, p_scheduled_for timestamptz DEFAULT NULL
) RETURNS TABLE (id bigint, created boolean, action text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_holder record;
  v_on_conflict text := coalesce(p_on_conflict, 'keep');
BEGIN
  IF v_on_conflict NOT IN ('keep', 'replace', 'rerun') THEN
    RAISE EXCEPTION 'p_on_conflict is %; it has to be keep, replace or rerun', quote_literal(p_on_conflict) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  p_payload := coalesce(p_payload, '{}');
  p_priority := coalesce(p_priority, 0);
  p_max_attempts := coalesce(p_max_attempts, 10);
  p_queue := coalesce(p_queue, 'default');
  FOR v_try IN 1..100 LOOP
    v_now := clock_timestamp();
    INSERT INTO pgjobs_job AS j (kind, payload, run_after, priority, dedupe_key, max_attempts, timeout, queue, expires_at, meta, parent_id,
                                 schedule_id, scheduled_for)
    VALUES (p_kind, p_payload, coalesce(p_run_after, v_now), p_priority, p_dedupe_key, p_max_attempts, p_timeout, p_queue, p_expires_at, p_meta, p_parent_id,
            p_schedule_id, p_scheduled_for)
    ON CONFLICT (kind, dedupe_key) WHERE dedupe_key IS NOT NULL AND status IN ('pending', 'reserved') DO NOTHING
    RETURNING j.id, true, 'created' INTO id, created, action;
    IF FOUND THEN RETURN NEXT; RETURN; END IF;

    SELECT j.id, j.status, j.expires_at INTO v_holder FROM pgjobs_job j
    WHERE j.kind = p_kind AND j.dedupe_key = p_dedupe_key AND j.status IN ('pending', 'reserved');
    CONTINUE WHEN NOT FOUND;  -- it ended just now: the key is free

    IF v_holder.status = 'pending' AND v_holder.expires_at <= v_now THEN  -- an expired holder has ended, but nobody has written it yet
      UPDATE pgjobs_job j SET status = 'cancelled', finished_at = v_now, last_error = 'expired', updated_at = v_now
      WHERE j.id = v_holder.id AND j.lease IS NULL AND j.finished_at IS NULL AND j.expires_at <= v_now;
      CONTINUE;
    END IF;

    IF v_on_conflict = 'keep' OR (v_on_conflict = 'rerun' AND v_holder.status = 'pending') THEN
      RETURN QUERY SELECT v_holder.id, false, 'kept';
      RETURN;
    ELSIF v_holder.status = 'pending' THEN
      UPDATE pgjobs_job j SET payload = p_payload, priority = p_priority, run_after = coalesce(p_run_after, v_now), updated_at = v_now
      WHERE j.id = v_holder.id AND j.lease IS NULL AND j.finished_at IS NULL;  -- still pending; named, the status would invite a walk over pgjobs_claim
      CONTINUE WHEN NOT FOUND;  -- claimed just now: look again
      IF current_setting('pgjobs.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('pgjobs', j.queue) FROM pgjobs_job j WHERE j.id = v_holder.id;
      END IF;
      RETURN QUERY SELECT v_holder.id, false, 'replaced';
      RETURN;
    ELSE
      -- The running row is not touched: whatever ends it finds the wish (triggers.sql); should it end before this
      -- transaction commits, the wish's own trigger, at commit, does the same.
      INSERT INTO pgjobs_rerun AS r (kind, dedupe_key, queue, payload, priority, run_after, max_attempts, timeout, expires_at, meta, parent_id,
                                   schedule_id, scheduled_for)
      VALUES (p_kind, p_dedupe_key, p_queue, p_payload, p_priority, coalesce(p_run_after, v_now), p_max_attempts, p_timeout, p_expires_at, p_meta, p_parent_id,
              p_schedule_id, p_scheduled_for)
      ON CONFLICT (kind, dedupe_key) DO UPDATE SET
        queue = excluded.queue, payload = excluded.payload, priority = excluded.priority, run_after = excluded.run_after, max_attempts = excluded.max_attempts,
        timeout = excluded.timeout, expires_at = excluded.expires_at, meta = excluded.meta, parent_id = excluded.parent_id,
        schedule_id = excluded.schedule_id, scheduled_for = excluded.scheduled_for, created_at = v_now;
      RETURN QUERY SELECT v_holder.id, false, 'rerun';
      RETURN;
    END IF;
  END LOOP;
  RAISE EXCEPTION 'the holder of dedupe key % of % changed 100 times in a row; try again', quote_literal(p_dedupe_key), quote_literal(p_kind)
    USING ERRCODE = 'serialization_failure';
END $$;

-- enqueue, for many: rows without a dedupe key go in as one insert, rows with one pass through enqueue in the order of their keys.
-- p_jobs: a JSON array of objects {k: kind, p: payload, or an array of payloads of jobs that are alike} with, each optional:
-- q queue, r priority, a run_after (a time) or d (seconds from now), n max_attempts, t timeout in seconds (null: no limit),
-- u dedupe_key, c on_conflict, e expires_at, m meta.
-- Index: pgjobs_dedupe, for those with a key.
-- Returns a row for each object with a key, by its place in p_jobs (from 1): the job's id, whether it was created, and the
-- action; and one row, whose place is NULL, with the ids of all other jobs in their order.
CREATE OR REPLACE FUNCTION pgjobs_enqueue_many(p_jobs jsonb, p_parent_id bigint DEFAULT NULL)
RETURNS TABLE (place bigint, ids bigint[], created boolean, action text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_ids bigint[];
  v_job record;
BEGIN
  -- What jobs have in common is read once. The identity numbers the rows in the order of the insert, so the n-th smallest id is
  -- the n-th row.
  WITH alike AS MATERIALIZED (
    SELECT e.n, e.v ->> 'k' AS kind, coalesce(e.v ->> 'q', 'default') AS queue, coalesce((e.v ->> 'r')::smallint, 0::smallint) AS priority,
           coalesce((e.v ->> 'a')::timestamptz, v_now + make_interval(secs => coalesce((e.v ->> 'd')::float8, 0))) AS run_after,
           coalesce((e.v ->> 'n')::integer, 10) AS max_attempts,
           CASE WHEN e.v ? 't' THEN make_interval(secs => (e.v ->> 't')::float8) ELSE interval '5 minutes' END AS timeout,
           (e.v ->> 'e')::timestamptz AS expires_at, e.v -> 'm' AS meta,
           CASE WHEN jsonb_typeof(e.v -> 'p') = 'array' THEN e.v -> 'p' ELSE jsonb_build_array(e.v -> 'p') END AS payloads
    FROM jsonb_array_elements(p_jobs) WITH ORDINALITY e (v, n) WHERE e.v -> 'u' IS NULL
  ), added AS (
    INSERT INTO pgjobs_job AS j (kind, payload, queue, priority, run_after, max_attempts, timeout, expires_at, meta, parent_id)
    SELECT a.kind, p.v, a.queue, a.priority, a.run_after, a.max_attempts, a.timeout, a.expires_at, a.meta, p_parent_id
    FROM alike a CROSS JOIN LATERAL jsonb_array_elements(a.payloads) WITH ORDINALITY p (v, m) ORDER BY a.n, p.m
    RETURNING j.id
  ) SELECT array_agg(a.id ORDER BY a.id) INTO v_ids FROM added a;
  IF v_ids IS NOT NULL THEN
    RETURN QUERY SELECT NULL::bigint, v_ids, true, 'created';
  END IF;

  FOR v_job IN
    SELECT e.v, e.n FROM jsonb_array_elements(p_jobs) WITH ORDINALITY e (v, n) WHERE e.v -> 'u' IS NOT NULL
    ORDER BY (e.v ->> 'k') COLLATE "C", (e.v ->> 'u') COLLATE "C", e.n
  LOOP
    RETURN QUERY SELECT v_job.n, ARRAY[q.id], q.created, q.action FROM pgjobs_enqueue(
      p_kind => v_job.v ->> 'k', p_payload => v_job.v -> 'p', p_queue => v_job.v ->> 'q', p_priority => (v_job.v ->> 'r')::integer,
      p_run_after => coalesce((v_job.v ->> 'a')::timestamptz, clock_timestamp() + make_interval(secs => (v_job.v ->> 'd')::float8)),
      p_max_attempts => (v_job.v ->> 'n')::integer,
      p_timeout => CASE WHEN v_job.v ? 't' THEN make_interval(secs => (v_job.v ->> 't')::float8) ELSE interval '5 minutes' END,
      p_dedupe_key => v_job.v ->> 'u', p_on_conflict => v_job.v ->> 'c', p_expires_at => (v_job.v ->> 'e')::timestamptz,
      p_meta => v_job.v -> 'm', p_parent_id => p_parent_id) q;
  END LOOP;
END $$;

-- rerun: turn the wish for a (kind, dedupe key) into a new pending job, unless a live job holds the key (its end will do it).
-- p_kind, p_dedupe_key: whose wish.
-- Index: pgjobs_rerun_key, pgjobs_dedupe.
-- Returns the new job's id, or NULL. A wish that an open transaction is changing is left to that transaction's commit.
CREATE OR REPLACE FUNCTION pgjobs_rerun(p_kind text, p_dedupe_key text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_wish pgjobs_rerun;
  v_id bigint;
BEGIN
  SELECT * INTO v_wish FROM pgjobs_rerun r WHERE r.kind = p_kind AND r.dedupe_key = p_dedupe_key FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM 1 FROM pgjobs_job j WHERE j.kind = p_kind AND j.dedupe_key = p_dedupe_key AND j.status IN ('pending', 'reserved');
  IF FOUND THEN RETURN NULL; END IF;
  INSERT INTO pgjobs_job AS j (kind, dedupe_key, queue, payload, priority, run_after, max_attempts, timeout, expires_at, meta, parent_id,
                               schedule_id, scheduled_for)
  VALUES (p_kind, p_dedupe_key, v_wish.queue, v_wish.payload, v_wish.priority, v_wish.run_after, v_wish.max_attempts, v_wish.timeout,
          v_wish.expires_at, v_wish.meta, v_wish.parent_id, v_wish.schedule_id, v_wish.scheduled_for)
  ON CONFLICT (kind, dedupe_key) WHERE dedupe_key IS NOT NULL AND status IN ('pending', 'reserved') DO NOTHING
  RETURNING j.id INTO v_id;
  IF v_id IS NOT NULL THEN
    DELETE FROM pgjobs_rerun r WHERE r.id = v_wish.id;
    IF v_wish.schedule_id IS NOT NULL THEN  -- the tick that waited behind a running job learns its own
      UPDATE pgjobs_tick t SET job_id = v_id, outcome = 'enqueued' WHERE t.schedule_id = v_wish.schedule_id AND t.scheduled_for = v_wish.scheduled_for;
    END IF;
  END IF;
  RETURN v_id;
END $$;

-- claim, as the Python worker calls it: pending → reserved, for the p_limit due jobs that are first in the order of claim.
-- p_limit … p_suspects: as in claim; p_read: what the last call of the same worker answered, or NULL to read everything from the
-- beginning. With it each queue and priority is read from where that call stopped, so that a mountain of rows that this worker
-- cannot run, or of dead ones that a long transaction keeps, is walked once and not by each claim. What then comes to lie behind
-- (a late commit, a backdated or moved job) is seen by the next call without it: the worker makes one each second or so.
-- p_doze: fall asleep when nothing was found, that is hold the locks (bell) by which inserters see that somebody wants to be told;
-- p_asleep: they are held already. A call that finds something lets go of them.
-- Index: pgjobs_claim. For each queue the priorities that exist are probed from the top, and of each only the due range is
-- read, so that a mountain of future jobs costs one probe. Where p_read knows a level, its beginning is not probed.
-- Returns what a worker needs of each job, in no order (waited: seconds from due to claimed); and in a first row, whose id is NULL, as p_read for the next call: an object with
-- swept (whether everything was read from the beginning), took (seconds of the search), due (seconds until the next pending job
-- of these queues, or the end of a pause; only when nothing was found, since a claim that found something is soon followed by
-- the next; NULL: nothing waits for its time), asleep;
-- settled and, by a call that falls asleep, unsettled (transactions: all before the first had ended when the search began; those
-- before the second may have inserted before the lock was taken, and told nobody); and what is known of the levels.
CREATE OR REPLACE FUNCTION pgjobs_claim_many(
  p_limit integer, p_worker text, p_queues text[], p_lease interval, p_kinds text[], p_exclude_queues text[], p_suspects boolean, p_read jsonb DEFAULT NULL,
  p_asleep boolean DEFAULT false, p_doze boolean DEFAULT false
) RETURNS TABLE (
  id bigint, lease bigint, kind text, queue text, payload jsonb, attempts integer, max_attempts integer, timeout double precision, meta jsonb,
  scheduled_for timestamptz, lost integer, waited double precision, priority integer
)
LANGUAGE plpgsql
-- Statistics of a table that fills and empties all day mislead the planner; these leave it the index alone. (jit = off: the
-- cost of a plan node that is switched off is so high that each call would be compiled, for a quarter of a second.)
SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  c_forever CONSTANT timestamptz := 'infinity';
  c_most CONSTANT bigint := 9223372036854775807;
  c_table CONSTANT integer := ('pgjobs_job'::regclass::oid::bigint - 2147483648)::integer;
  c_late CONSTANT interval := '100 milliseconds';  -- an enqueue reads its clock before it commits: probes start so much earlier
  v_now timestamptz := clock_timestamp();
  -- 63 random bits, never from a sequence: an unflushed one repeats after a crash of the server.
  v_token bigint := hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807;
  v_no_queues text[] := coalesce(p_exclude_queues, '{}');
  v_no_kinds text[] := '{}';
  v_paused text;                -- p_read of another set of pauses is worthless
  -- What is known of levels, side by side: a queue, a priority, and the place after which it was not read yet.
  k_queues text[] := '{}'; k_levels smallint[] := '{}'; k_ats timestamptz[] := '{}'; k_ids bigint[] := '{}';
  v_queues text[] := '{}';      -- queues with pending rows that may still give some
  v_heads smallint[] := '{}';   -- for each, the highest priority not yet read
  v_queue text := '';
  v_next text; v_between text;
  v_level smallint; v_head smallint; v_known smallint;
  v_places integer[];           -- of this level's queues, in k_…
  v_cut_at timestamptz; v_cut_id bigint;
  v_place integer;
  v_block integer;              -- rows of each that are looked at for the cut
  v_seen tid[];
  v_some tid[];
  v_rows tid[] := '{}';
  v_left integer;
  v_due timestamptz;
  v_found timestamptz; v_last bigint;
  v_settled xid8 := pg_snapshot_xmin(pg_current_snapshot());
  v_unsettled xid8;
  v_held integer[];
  v_first text[] := ARRAY[p_worker];
BEGIN
  IF coalesce(p_limit, 0) < 1 THEN RETURN; END IF;
  IF coalesce(p_worker, '') = '' THEN
    RAISE EXCEPTION 'p_worker has to name the worker' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  IF EXISTS (SELECT FROM pgjobs_pause p WHERE p.until IS NULL OR p.until > v_now) THEN
    SELECT coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'queue'), '{}') || v_no_queues, coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'kind'), '{}'),
           min(p.until), md5(string_agg(p.scope || p.name, E'\n' ORDER BY p.scope, p.name))
    INTO v_no_queues, v_no_kinds, v_due, v_paused FROM pgjobs_pause p WHERE p.until IS NULL OR p.until > v_now;
  END IF;
  IF (p_read ->> 'at')::timestamptz <= v_now AND p_read ->> 'paused' IS NOT DISTINCT FROM v_paused AND jsonb_typeof(p_read -> 'levels') = 'array' THEN
    SELECT coalesce(array_agg(e.v ->> 0), '{}'), coalesce(array_agg((e.v ->> 1)::smallint), '{}'), coalesce(array_agg((e.v ->> 2)::timestamptz), '{}'),
           coalesce(array_agg((e.v ->> 3)::bigint), '{}')
    INTO k_queues, k_levels, k_ats, k_ids FROM jsonb_array_elements(p_read -> 'levels') e (v);
  ELSE
    p_read := NULL;
  END IF;

  IF p_suspects THEN  -- few, by an index of their own (pgjobs_suspects)
    v_rows := ARRAY(
      SELECT j.ctid FROM pgjobs_job j
      WHERE j.status = 'pending' AND j.suspect AND j.run_after <= v_now
        AND (p_queues IS NULL OR j.queue = ANY (p_queues)) AND j.queue <> ALL (v_no_queues)
        AND (p_kinds IS NULL OR j.kind = ANY (p_kinds)) AND j.kind <> ALL (v_no_kinds) AND (j.expires_at IS NULL OR j.expires_at > v_now)
      ORDER BY j.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED);
    SELECT least(v_due, min(j.run_after)) INTO v_due FROM pgjobs_job j WHERE j.status = 'pending' AND j.suspect AND j.run_after > v_now;
  END IF;

  LOOP  -- a loose index scan: the queues that have pending rows; those that are known need no look
    EXIT WHEN p_suspects;
    IF p_read IS NOT NULL THEN
      SELECT min(u.q) INTO v_next FROM unnest(k_queues) u (q) WHERE u.q > v_queue;
    END IF;
    IF v_next IS NULL THEN
      SELECT j.queue, j.priority INTO v_queue, v_level FROM pgjobs_job j WHERE j.status = 'pending' AND j.queue > v_queue ORDER BY j.queue, j.priority DESC LIMIT 1;
      EXIT WHEN NOT FOUND;
    ELSE  -- a statement of its own: "v_next IS NULL OR …" would be no bound, and all of the next queue be walked
      SELECT j.queue, j.priority INTO v_between, v_level FROM pgjobs_job j
      WHERE j.status = 'pending' AND j.queue > v_queue AND j.queue < v_next ORDER BY j.queue, j.priority DESC LIMIT 1;
      v_queue := coalesce(v_between, v_next);
      IF v_between IS NULL THEN
        SELECT max(u.p) INTO v_known FROM unnest(k_queues, k_levels) u (q, p) WHERE u.q = v_queue;
        SELECT j.priority INTO v_level FROM pgjobs_job j WHERE j.status = 'pending' AND j.queue = v_queue AND j.priority > v_known ORDER BY j.priority DESC LIMIT 1;
        v_level := coalesce(v_level, v_known);
      END IF;
    END IF;
    IF (p_queues IS NULL OR v_queue = ANY (p_queues)) AND v_queue <> ALL (v_no_queues) THEN
      v_queues := v_queues || v_queue;
      v_heads := v_heads || v_level;
    ELSIF v_queue <> ALL (k_queues) THEN  -- not ours, but its beginning is not to be looked at again
      k_queues := k_queues || v_queue; k_levels := k_levels || v_level; k_ats := k_ats || '-infinity'::timestamptz; k_ids := k_ids || 0::bigint;
    END IF;
  END LOOP;

  WHILE cardinality(v_queues) > 0 AND cardinality(v_rows) < p_limit LOOP
    v_level := v_heads[1];
    FOR v_n IN 2..cardinality(v_heads) LOOP v_level := greatest(v_level, v_heads[v_n]); END LOOP;
    v_places := '{}';
    FOR v_n IN 1..cardinality(v_queues) LOOP
      CONTINUE WHEN v_heads[v_n] <> v_level;
      v_place := NULL;
      IF p_read IS NOT NULL THEN
        SELECT u.n INTO v_place FROM unnest(k_queues, k_levels) WITH ORDINALITY u (q, p, n) WHERE u.q = v_queues[v_n] AND u.p = v_level;
      END IF;
      IF v_place IS NULL THEN
        k_queues := k_queues || v_queues[v_n]; k_levels := k_levels || v_level; k_ats := k_ats || '-infinity'::timestamptz; k_ids := k_ids || 0::bigint;
        v_place := cardinality(k_queues);
      END IF;
      v_places := v_places || v_place;
    END LOOP;
    v_block := 2 * least(p_limit, 10000) / cardinality(v_places) + 2;
    LOOP
      v_left := p_limit - cardinality(v_rows);
      v_cut_at := c_forever; v_cut_id := c_most;
      IF cardinality(v_places) = 1 THEN
        v_place := v_places[1];
        v_some := ARRAY(
          SELECT j.ctid FROM pgjobs_job j
          WHERE j.status = 'pending' AND j.queue = k_queues[v_place] AND j.priority = v_level AND j.run_after <= v_now
            AND (j.run_after, j.id) > (k_ats[v_place], k_ids[v_place])
            AND (p_kinds IS NULL OR j.kind = ANY (p_kinds)) AND j.kind <> ALL (v_no_kinds) AND (j.expires_at IS NULL OR j.expires_at > v_now)
            AND (p_suspects IS NULL OR NOT j.suspect)
          ORDER BY j.run_after, j.id LIMIT v_left
          FOR NO KEY UPDATE SKIP LOCKED);
      ELSE  -- the first rows of each, unlocked; the merge is known as far as the limit, or as one of them was looked at
        WITH seen AS MATERIALIZED (
          SELECT c.* FROM unnest(v_places) m (n) CROSS JOIN LATERAL (SELECT d.*, row_number() OVER () AS r FROM (
            SELECT j.run_after, j.id, j.ctid AS tid FROM pgjobs_job j
            WHERE j.status = 'pending' AND j.queue = k_queues[m.n] AND j.priority = v_level AND j.run_after <= v_now
              AND (j.run_after, j.id) > (k_ats[m.n], k_ids[m.n])
              AND (p_kinds IS NULL OR j.kind = ANY (p_kinds)) AND j.kind <> ALL (v_no_kinds) AND (j.expires_at IS NULL OR j.expires_at > v_now)
              AND (p_suspects IS NULL OR NOT j.suspect)
            ORDER BY j.run_after, j.id LIMIT v_block
          ) d) c
        ), cut AS MATERIALIZED (
          SELECT u.run_after, u.id FROM (
            (SELECT c.run_after, c.id FROM seen c ORDER BY c.run_after, c.id OFFSET v_left - 1 LIMIT 1)
            UNION ALL (SELECT c.run_after, c.id FROM seen c WHERE c.r = v_block ORDER BY c.run_after, c.id LIMIT 1)
            UNION ALL SELECT c_forever, c_most
          ) u ORDER BY u.run_after, u.id LIMIT 1
        ) SELECT c.run_after, c.id, ARRAY(SELECT s.tid FROM seen s WHERE (s.run_after, s.id) <= (c.run_after, c.id)) INTO v_cut_at, v_cut_id, v_seen FROM cut c;
        v_some := ARRAY(
          SELECT j.ctid FROM pgjobs_job j  -- what has become of them since counts; in their old place there may even be others
          WHERE j.ctid = ANY (v_seen) AND j.status = 'pending' AND j.queue = ANY (v_queues) AND j.priority = v_level AND j.run_after <= v_now
            AND (p_kinds IS NULL OR j.kind = ANY (p_kinds)) AND j.kind <> ALL (v_no_kinds) AND (j.expires_at IS NULL OR j.expires_at > v_now)
            AND (p_suspects IS NULL OR NOT j.suspect)
          FOR NO KEY UPDATE SKIP LOCKED);
        v_block := least(2 * v_block, 10000);  -- should one queue have nearly all of them, then not for long in small steps
      END IF;
      v_rows := v_rows || v_some;
      FOREACH v_place IN ARRAY v_places LOOP
        IF v_cut_at < c_forever THEN
          IF (v_cut_at, v_cut_id) > (k_ats[v_place], k_ids[v_place]) THEN k_ats[v_place] := v_cut_at; k_ids[v_place] := v_cut_id; END IF;
        ELSIF cardinality(v_some) < v_left THEN
          IF k_ats[v_place] < v_now - c_late THEN k_ats[v_place] := v_now - c_late; k_ids[v_place] := 0; END IF;
        ELSIF cardinality(v_places) = 1 THEN  -- read up to the last of them
          SELECT j.run_after, j.id INTO v_found, v_last FROM pgjobs_job j WHERE j.ctid = v_some[v_left];
          k_ats[v_place] := v_found; k_ids[v_place] := v_last;
        END IF;
      END LOOP;
      EXIT WHEN v_cut_at = c_forever OR cardinality(v_rows) >= p_limit;  -- else go on behind the cut
    END LOOP;
    CONTINUE WHEN cardinality(v_rows) >= p_limit;
    FOR v_n IN REVERSE cardinality(v_queues)..1 LOOP  -- the next lower priority of each queue that was at this level
      CONTINUE WHEN v_heads[v_n] < v_level;
      v_queue := v_queues[v_n];
      v_known := NULL;
      IF p_read IS NOT NULL THEN
        SELECT max(u.p) INTO v_known FROM unnest(k_queues, k_levels) u (q, p) WHERE u.q = v_queue AND u.p < v_level;
      END IF;
      SELECT j.priority INTO v_head FROM pgjobs_job j
      WHERE j.status = 'pending' AND j.queue = v_queue AND j.priority < v_level AND j.priority > coalesce(v_known, -101) ORDER BY j.priority DESC LIMIT 1;
      v_head := coalesce(v_head, v_known);
      IF v_head IS NOT NULL THEN
        v_heads[v_n] := v_head;
      ELSE
        v_queues := v_queues[:v_n - 1] || v_queues[v_n + 1:]; v_heads := v_heads[:v_n - 1] || v_heads[v_n + 1:];
      END IF;
    END LOOP;
  END LOOP;

  IF cardinality(v_rows) = 0 AND p_suspects IS NOT TRUE THEN  -- every level was read: when does the next job come due?
    FOR v_place IN 1..cardinality(k_queues) LOOP
      CONTINUE WHEN k_ats[v_place] = '-infinity';  -- a queue that is not ours
      SELECT j.run_after INTO v_found FROM pgjobs_job j
      WHERE j.status = 'pending' AND j.queue = k_queues[v_place] AND j.priority = k_levels[v_place] AND j.run_after > v_now ORDER BY j.run_after LIMIT 1;
      v_due := least(v_due, v_found);
    END LOOP;
  END IF;
  -- The keys of bell, without a call of it: a function in SQL is planned anew by each statement.
  IF cardinality(v_rows) > 0 AND p_asleep THEN
    PERFORM pg_advisory_unlock_shared(coalesce(hashtext(q), 1885825898), c_table) FROM unnest(coalesce(p_queues, ARRAY[NULL::text])) q;
    p_asleep := false;
  ELSIF cardinality(v_rows) = 0 AND p_doze AND NOT p_asleep THEN  -- not to be waited for: an inserter may hold one for a moment
    SELECT coalesce(bool_and(h.got), false), array_agg(h.key) FILTER (WHERE h.got) INTO p_asleep, v_held FROM (
      SELECT coalesce(hashtext(q), 1885825898) AS key, pg_try_advisory_lock_shared(coalesce(hashtext(q), 1885825898), c_table) AS got
      FROM unnest(coalesce(p_queues, ARRAY[NULL::text])) q OFFSET 0) h;
    IF p_asleep THEN
      v_unsettled := pg_current_xact_id();  -- whoever inserted before has a smaller one
    ELSE
      PERFORM pg_advisory_unlock_shared(h, c_table) FROM unnest(v_held) h;
    END IF;
  END IF;
  meta := jsonb_build_object(
    'swept', p_read IS NULL, 'asleep', p_asleep, 'settled', v_settled::text::bigint, 'unsettled', v_unsettled::text::bigint, 'at', v_now, 'paused', v_paused, 'took', extract(epoch FROM clock_timestamp() - v_now),
    'due', CASE WHEN cardinality(v_rows) = 0 AND v_due IS NOT NULL THEN extract(epoch FROM greatest(v_due - clock_timestamp(), interval '0')) END,
    'levels', (SELECT jsonb_agg(jsonb_build_array(u.q, u.p, u.at, u.i)) FROM unnest(k_queues, k_levels, k_ats, k_ids) u (q, p, at, i) WHERE cardinality(k_queues) <= 500));
  RETURN NEXT;
  IF cardinality(v_rows) = 0 THEN RETURN; END IF;
  v_now := clock_timestamp();  -- the lease counts from here, however long the search took
  -- The rows are locked, so their ctids hold; a TID scan cannot be planned into anything else.
  RETURN QUERY UPDATE pgjobs_job j SET
    status = 'reserved', attempts = j.attempts + 1, lease = v_token, reserved_by = p_worker, reserved_at = v_now,
    reserved_until = v_now + coalesce(p_lease, j.timeout, interval '1 hour'), worker = p_worker,
    worker_ids = CASE cardinality(j.worker_ids) WHEN 0 THEN v_first ELSE j.worker_ids[greatest(cardinality(j.worker_ids) - 30, 1):] || p_worker END,
    last_attempted_at = v_now, started_at = coalesce(j.started_at, v_now), updated_at = v_now
  WHERE j.ctid = ANY (v_rows)
  RETURNING j.id, j.lease, j.kind, j.queue, j.payload, j.attempts, j.max_attempts, date_part('epoch', j.timeout), j.meta, j.scheduled_for,
    j.lost::integer, date_part('epoch', v_now - j.run_after), j.priority::integer;
END $$;

-- claim: pending → reserved, for at most p_limit due jobs: highest priority first, then run_after, then id, across queues.
-- p_queues NULL: all; p_kinds NULL: all; p_lease: how long to hold (NULL: each job's own timeout, an hour when it has none);
-- p_suspects: true for only those that must run alone, false for none of them, NULL for all.
-- Index: pgjobs_claim (claim_many, which this calls); the primary key, once for each.
-- Returns the claimed rows in that order, all with one new lease. Rows that others hold are passed over; no lock stays on a
-- row that is not taken.
CREATE OR REPLACE FUNCTION pgjobs_claim(
  p_limit integer, p_worker text, p_queues text[] DEFAULT NULL, p_lease interval DEFAULT NULL,
  p_kinds text[] DEFAULT NULL, p_exclude_queues text[] DEFAULT NULL, p_suspects boolean DEFAULT NULL
) RETURNS SETOF pgjobs_job
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(SELECT c.id FROM pgjobs_claim_many(p_limit, p_worker, p_queues, p_lease, p_kinds, p_exclude_queues, p_suspects) c WHERE c.id IS NOT NULL);
  RETURN QUERY SELECT j.* FROM unnest(v_ids) u (id) CROSS JOIN LATERAL (SELECT * FROM pgjobs_job o WHERE o.id = u.id OFFSET 0) j
  ORDER BY j.priority DESC, j.run_after, j.id;
END $$;

-- heartbeat: extend the leases of the jobs that a worker holds.
-- p_ids, p_leases: the jobs and their tokens, pair by pair; p_lease: how long to hold from now.
-- Index: the primary key, once for each pair (the lateral subquery locks, so it cannot become a join).
-- Returns a row for each job: held, cancel (held, and somebody asked to cancel it), busy (locked by others: beat again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_heartbeat(p_ids bigint[], p_leases bigint[], p_lease interval) RETURNS TABLE (id bigint, verdict text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_rows tid[];
  v_held bigint[];  -- places of the pairs, not ids: a stale pair of the same job is lost
  v_cancel bigint[];
BEGIN
  SELECT array_agg(x.ctid), array_agg(h.n) INTO v_rows, v_held FROM (SELECT * FROM unnest(p_ids, p_leases) WITH ORDINALITY u (id, lease, n) ORDER BY u.id) h
  CROSS JOIN LATERAL (SELECT j.ctid FROM pgjobs_job j WHERE j.id = h.id AND j.lease = h.lease FOR NO KEY UPDATE SKIP LOCKED) x;
  v_now := clock_timestamp();
  WITH beaten AS (
    UPDATE pgjobs_job j SET reserved_until = greatest(j.reserved_until, v_now + p_lease), updated_at = v_now
    WHERE j.ctid = ANY (v_rows) RETURNING j.id, j.cancel_requested_at
  ) SELECT array_agg(b.id) INTO v_cancel FROM beaten b WHERE b.cancel_requested_at IS NOT NULL;
  RETURN QUERY SELECT u.id, CASE
    WHEN u.n = ANY (v_held) THEN CASE WHEN u.id = ANY (v_cancel) THEN 'cancel' ELSE 'held' END
    WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id AND j.lease = u.lease) THEN 'busy'
    ELSE 'lost' END
  FROM unnest(p_ids, p_leases) WITH ORDINALITY u (id, lease, n);
END $$;

-- finish, for many: reserved → done, each row only under its own lease.
-- p_ids, p_leases: pair by pair; p_results: {id: result} of those that returned something; p_notes: {id: text} for the reader.
-- Index: the primary key, once for each pair (the lateral subquery locks, so it cannot become a join).
-- Returns only the jobs that were not finished: busy (locked by others: try again) or lost.
CREATE OR REPLACE FUNCTION pgjobs_finish_many(p_ids bigint[], p_leases bigint[], p_results jsonb DEFAULT NULL, p_notes jsonb DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_rows tid[] := ARRAY(
    SELECT x.ctid FROM (SELECT * FROM unnest(p_ids, p_leases) u (id, lease) ORDER BY u.id) h
    CROSS JOIN LATERAL (SELECT j.ctid FROM pgjobs_job j WHERE j.id = h.id AND j.lease = h.lease FOR NO KEY UPDATE SKIP LOCKED) x);
  v_left bigint[];  -- places of the other pairs, not ids: a stale pair of the same job is lost
BEGIN
  IF cardinality(v_rows) < cardinality(p_ids) THEN
    SELECT coalesce(array_agg(u.n), '{}') INTO v_left FROM unnest(p_ids, p_leases) WITH ORDINALITY u (id, lease, n)
    WHERE NOT EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id AND j.lease = u.lease AND j.ctid = ANY (v_rows));
  END IF;
  v_now := clock_timestamp();
  UPDATE pgjobs_job j SET
    status = 'done', finished_at = v_now, updated_at = v_now, lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL,
    result = CASE WHEN p_results IS NOT NULL THEN p_results -> j.id::text END, last_error = CASE WHEN p_notes IS NOT NULL THEN p_notes ->> j.id::text END, error_class = NULL, lost = 0, suspect = false
  WHERE j.ctid = ANY (v_rows);
  IF v_left IS NOT NULL THEN
    RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id AND j.lease = u.lease) THEN 'busy' ELSE 'lost' END
    FROM unnest(p_ids, p_leases) WITH ORDINALITY u (id, lease, n) WHERE u.n = ANY (v_left);
  END IF;
END $$;

-- retry: reserved → pending later, because the handler failed and attempts are left. A job that somebody asked to cancel ends as cancelled.
-- p_delay: how long to wait from now; NULL: pgjobs_next_run_after. p_outcome: error or timeout.
-- Index: the primary key.
-- Returns the new status, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_retry(
  p_id bigint, p_lease bigint, p_error text, p_error_class text DEFAULT '', p_traceback text DEFAULT '', p_delay interval DEFAULT NULL,
  p_outcome text DEFAULT 'error', p_log text DEFAULT ''
) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_status text := pgjobs_hold(p_id, p_lease);
  v_now timestamptz := clock_timestamp();
BEGIN
  IF v_status <> 'held' THEN RETURN v_status; END IF;
  WITH moved AS (
    UPDATE pgjobs_job j SET
      status = CASE WHEN j.cancel_requested_at IS NULL THEN 'pending' ELSE 'cancelled' END,
      finished_at = CASE WHEN j.cancel_requested_at IS NULL THEN NULL ELSE v_now END,
      run_after = CASE WHEN j.cancel_requested_at IS NULL THEN coalesce(v_now + p_delay, pgjobs_next_run_after(j.attempts)) ELSE j.run_after END,
      lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, lost = 0, suspect = false,
      last_error = p_error, error_class = nullif(p_error_class, ''), updated_at = v_now
    WHERE j.id = p_id AND j.lease = p_lease RETURNING j.*
  ), recorded AS (
    INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error_class, error, traceback, worker, started_at, finished_at, log)
    SELECT m.id, m.attempts, coalesce(p_outcome, 'error'), coalesce(p_error_class, ''), coalesce(p_error, ''), coalesce(p_traceback, ''), coalesce(m.worker, ''), m.last_attempted_at, v_now, coalesce(p_log, '') FROM moved m
  ) SELECT m.status INTO v_status FROM moved m;
  RETURN v_status;
END $$;

-- bury: reserved → dead, because the handler failed and no attempt is left. A job that somebody asked to cancel ends as cancelled.
-- p_outcome: error or timeout. (An operator buries pending jobs: bury_pending.sql.)
-- Index: the primary key.
-- Returns the new status, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_bury(
  p_id bigint, p_lease bigint, p_error text, p_error_class text DEFAULT '', p_traceback text DEFAULT '',
  p_outcome text DEFAULT 'error', p_log text DEFAULT ''
) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_status text := pgjobs_hold(p_id, p_lease);
  v_now timestamptz := clock_timestamp();
BEGIN
  IF v_status <> 'held' THEN RETURN v_status; END IF;
  WITH moved AS (
    UPDATE pgjobs_job j SET
      status = CASE WHEN j.cancel_requested_at IS NULL THEN 'dead' ELSE 'cancelled' END, finished_at = v_now,
      lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, lost = 0, suspect = false,
      last_error = p_error, error_class = nullif(p_error_class, ''), updated_at = v_now
    WHERE j.id = p_id AND j.lease = p_lease RETURNING j.*
  ), recorded AS (
    INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error_class, error, traceback, worker, started_at, finished_at, log)
    SELECT m.id, m.attempts, coalesce(p_outcome, 'error'), coalesce(p_error_class, ''), coalesce(p_error, ''), coalesce(p_traceback, ''), coalesce(m.worker, ''), m.last_attempted_at, v_now, coalesce(p_log, '') FROM moved m
  ) SELECT m.status INTO v_status FROM moved m;
  RETURN v_status;
END $$;

-- fail: reserved → failed, because the handler said that it can never work, or the payload cannot fit. A job that somebody
-- asked to cancel ends as cancelled.
-- p_error, p_error_class, p_traceback, p_log: what happened.
-- Index: the primary key.
-- Returns the new status, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_fail(
  p_id bigint, p_lease bigint, p_error text, p_error_class text DEFAULT '', p_traceback text DEFAULT '', p_log text DEFAULT ''
) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_status text := pgjobs_hold(p_id, p_lease);
  v_now timestamptz := clock_timestamp();
BEGIN
  IF v_status <> 'held' THEN RETURN v_status; END IF;
  WITH moved AS (
    UPDATE pgjobs_job j SET
      status = CASE WHEN j.cancel_requested_at IS NULL THEN 'failed' ELSE 'cancelled' END, finished_at = v_now,
      lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, lost = 0, suspect = false,
      last_error = p_error, error_class = nullif(p_error_class, ''), updated_at = v_now
    WHERE j.id = p_id AND j.lease = p_lease RETURNING j.*
  ), recorded AS (
    INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error_class, error, traceback, worker, started_at, finished_at, log)
    SELECT m.id, m.attempts, 'failed', coalesce(p_error_class, ''), coalesce(p_error, ''), coalesce(p_traceback, ''), coalesce(m.worker, ''), m.last_attempted_at, v_now, coalesce(p_log, '') FROM moved m
  ) SELECT m.status INTO v_status FROM moved m;
  RETURN v_status;
END $$;

-- snooze: reserved → pending later; the attempt is given back and the snooze counted. A job that somebody asked to cancel
-- ends as cancelled.
-- p_until: when to run again; p_error: the reason, for the reader.
-- Index: the primary key.
-- Returns the new status, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_snooze(p_id bigint, p_lease bigint, p_until timestamptz, p_error text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_status text := pgjobs_hold(p_id, p_lease);
  v_now timestamptz := clock_timestamp();
BEGIN
  IF v_status <> 'held' THEN RETURN v_status; END IF;
  UPDATE pgjobs_job j SET
    status = CASE WHEN j.cancel_requested_at IS NULL THEN 'pending' ELSE 'cancelled' END,
    finished_at = CASE WHEN j.cancel_requested_at IS NULL THEN NULL ELSE v_now END,
    run_after = CASE WHEN j.cancel_requested_at IS NULL THEN p_until ELSE j.run_after END,
    attempts = greatest(j.attempts - 1, 0), snoozes = least(j.snoozes + 1, 32767), worker_ids = trim_array(j.worker_ids, least(cardinality(j.worker_ids), 1)), lost = 0, suspect = false,
    lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, last_error = nullif(p_error, ''), error_class = NULL, updated_at = v_now
  WHERE j.id = p_id AND j.lease = p_lease
  RETURNING j.status INTO v_status;
  RETURN v_status;
END $$;

-- release: reserved → pending now; the attempt is given back and the refund counted. A job that had started is refunded five
-- times at most (a pill must not hide behind deploys): after that its attempt counts, and the last one makes it dead.
-- A job that somebody asked to cancel ends as cancelled.
-- p_ids, p_leases: pair by pair; p_started: whether their handlers had begun; p_reason: for the history of those that had.
-- Index: the primary key, once for each pair.
-- Returns a row for each: the new status, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_release(p_ids bigint[], p_leases bigint[], p_started boolean, p_reason text DEFAULT '')
RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_rows tid[];
  v_held bigint[];  -- places of the pairs, not ids: a stale pair of the same job is lost
BEGIN
  SELECT array_agg(x.ctid), array_agg(h.n) INTO v_rows, v_held FROM (SELECT * FROM unnest(p_ids, p_leases) WITH ORDINALITY u (id, lease, n) ORDER BY u.id) h
  CROSS JOIN LATERAL (SELECT j.ctid FROM pgjobs_job j WHERE j.id = h.id AND j.lease = h.lease FOR NO KEY UPDATE SKIP LOCKED) x;
  v_now := clock_timestamp();
  IF p_started THEN
    INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error, worker, started_at, finished_at)
    SELECT j.id, j.attempts, 'interrupted', coalesce(p_reason, ''), coalesce(j.worker, ''), j.last_attempted_at, v_now FROM pgjobs_job j WHERE j.ctid = ANY (v_rows);
  END IF;
  RETURN QUERY WITH released AS (
    UPDATE pgjobs_job j SET
      status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN p_started AND j.refunds >= 5 AND j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
      finished_at = CASE WHEN j.cancel_requested_at IS NOT NULL OR p_started AND j.refunds >= 5 AND j.attempts >= j.max_attempts THEN v_now END,
      run_after = CASE WHEN j.cancel_requested_at IS NULL THEN v_now ELSE j.run_after END,
      attempts = CASE WHEN p_started AND j.refunds >= 5 THEN j.attempts ELSE greatest(j.attempts - 1, 0) END,
      worker_ids = CASE WHEN p_started AND j.refunds >= 5 THEN j.worker_ids ELSE trim_array(j.worker_ids, least(cardinality(j.worker_ids), 1)) END,
      refunds = CASE WHEN p_started AND j.refunds >= 5 THEN j.refunds ELSE least(j.refunds + 1, 32767) END,
      started_at = CASE WHEN NOT p_started AND j.attempts = 1 THEN NULL ELSE j.started_at END,
      lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL,
      last_error = CASE WHEN p_started THEN p_reason ELSE j.last_error END, updated_at = v_now
    WHERE j.ctid = ANY (v_rows) RETURNING j.id, j.status, j.queue
  ), told AS (
    SELECT pg_notify('pgjobs', q.queue) FROM (SELECT DISTINCT r.queue FROM released r WHERE r.status = 'pending') q
  ) SELECT r.id, r.status FROM released r CROSS JOIN (SELECT count(*) FROM told) t;  -- a LEFT JOIN whose columns nobody uses is planned away: nobody would be told
  RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id AND j.lease = u.lease) THEN 'busy' ELSE 'lost' END
  FROM unnest(p_ids, p_leases) WITH ORDINALITY u (id, lease, n) WHERE u.n <> ALL (coalesce(v_held, '{}'));
END $$;

-- release_unknown: reserved → pending now, for all that a worker holds by its name and does not know of: a claim whose answer
-- was lost with its connection, or what a dead one had not started. The attempt is given back.
-- p_worker; p_known: the ids that are to stay.
-- Index: pgjobs_reserved.
-- Returns what release does, for each such job.
CREATE OR REPLACE FUNCTION pgjobs_release_unknown(p_worker text, p_known bigint[]) RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_ids bigint[];
  v_leases bigint[];
BEGIN
  SELECT array_agg(j.id ORDER BY j.id), array_agg(j.lease ORDER BY j.id) INTO v_ids, v_leases
  FROM pgjobs_job j WHERE j.status = 'reserved' AND j.reserved_by = p_worker AND j.id <> ALL (p_known);
  IF v_ids IS NOT NULL THEN
    RETURN QUERY SELECT r.id, r.outcome FROM pgjobs_release(v_ids, v_leases, false) r;
  END IF;
END $$;

-- cancel, by the holder: reserved → cancelled, because the handler raised Cancel, or was told to stop and did.
-- p_error: the reason.
-- Index: the primary key.
-- Returns cancelled, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_cancel_held(p_id bigint, p_lease bigint, p_error text, p_log text DEFAULT '') RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_status text := pgjobs_hold(p_id, p_lease);
  v_now timestamptz := clock_timestamp();
BEGIN
  IF v_status <> 'held' THEN RETURN v_status; END IF;
  WITH moved AS (
    UPDATE pgjobs_job j SET
      status = 'cancelled', finished_at = v_now, lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, lost = 0, suspect = false,
      last_error = p_error, error_class = NULL, updated_at = v_now
    WHERE j.id = p_id AND j.lease = p_lease RETURNING j.*
  ) INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error, worker, started_at, finished_at, log)
    SELECT m.id, m.attempts, 'cancelled', coalesce(p_error, ''), coalesce(m.worker, ''), m.last_attempted_at, v_now, coalesce(p_log, '') FROM moved m;
  RETURN 'cancelled';
END $$;

-- progress: what a running handler says about how far it is; no move.
-- p_progress: {done, total, text}.
-- Index: the primary key.
-- Returns held when it was stored, or busy (locked by others), or lost.
CREATE OR REPLACE FUNCTION pgjobs_progress(p_id bigint, p_lease bigint, p_progress jsonb) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_held text := pgjobs_hold(p_id, p_lease);
BEGIN
  IF v_held = 'held' THEN
    UPDATE pgjobs_job j SET progress = p_progress, updated_at = clock_timestamp() WHERE j.id = p_id AND j.lease = p_lease;
  END IF;
  RETURN v_held;
END $$;

-- finish: reserved → done; or, when the handler failed, retry while attempts are left and bury when none is.
-- p_id, p_lease: the job and the token that the claim returned; p_result: the success's value; p_error: the failure's text
-- (of a success: a note for the reader, kept as last_error).
-- Index: the primary key.
-- Returns the new status (done, pending, dead; cancelled when a failure meets a request to cancel), or NULL when the lease was
-- lost: then nothing was changed. Unlike the batch forms it waits for a row that an open transaction holds.
CREATE OR REPLACE FUNCTION pgjobs_finish(p_id bigint, p_lease bigint, p_success boolean, p_error text DEFAULT NULL, p_result jsonb DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_job record;
BEGIN
  IF p_success IS NULL THEN
    RAISE EXCEPTION 'p_success has to be true or false' USING ERRCODE = 'null_value_not_allowed';
  END IF;
  SELECT j.attempts, j.max_attempts INTO v_job FROM pgjobs_job j WHERE j.id = p_id AND j.lease = p_lease FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  IF p_success THEN
    PERFORM pgjobs_finish_many(ARRAY[p_id], ARRAY[p_lease], 
      CASE WHEN p_result IS NOT NULL THEN jsonb_build_object(p_id::text, p_result) END, CASE WHEN p_error IS NOT NULL THEN jsonb_build_object(p_id::text, p_error) END);
    RETURN 'done';
  ELSIF v_job.attempts < v_job.max_attempts THEN
    RETURN pgjobs_retry(p_id, p_lease, p_error);
  END IF;
  RETURN pgjobs_bury(p_id, p_lease, p_error);
END $$;

-- reap: reservations whose lease lapsed → pending, or dead when no attempt is left, or cancelled when somebody asked for that.
-- It needs nothing but the row. p_batch: how many at most; p_spare_first: the first lost attempt in a row is due at once
-- (later ones wait: a job that kills its worker must not spin); false: each waits.
-- Index: pgjobs_reserved.
-- Returns what it moved: id, kind, queue, the new status, attempts, and the worker that lost it.
CREATE OR REPLACE FUNCTION pgjobs_reap(p_batch integer DEFAULT 1000, p_spare_first boolean DEFAULT true)
RETURNS TABLE (id bigint, kind text, queue text, status text, attempts integer, worker text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_rows tid[];
BEGIN
  -- That reserved_by is set follows from the status; named as a range it keeps the planner on the small index.
  v_rows := ARRAY(
    SELECT j.ctid FROM pgjobs_job j WHERE j.status = 'reserved' AND j.reserved_by >= '' AND j.reserved_until < v_now
    LIMIT p_batch FOR NO KEY UPDATE SKIP LOCKED);
  IF cardinality(v_rows) = 0 THEN RETURN; END IF;
  RETURN QUERY WITH reaped AS (
    UPDATE pgjobs_job j SET
      status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
      finished_at = CASE WHEN j.cancel_requested_at IS NOT NULL OR j.attempts >= j.max_attempts THEN v_now END,
      run_after = CASE WHEN j.cancel_requested_at IS NOT NULL OR j.attempts >= j.max_attempts THEN j.run_after
                       WHEN p_spare_first AND j.lost = 0 THEN v_now ELSE pgjobs_next_run_after(j.attempts) END,
      lost = least(j.lost + 1, 32767),
      last_error = concat_ws(E'\n', nullif(left(j.last_error, 10000), ''),
        CASE WHEN j.cancel_requested_at IS NULL AND j.attempts < j.max_attempts THEN 'Requeued after timeout' ELSE 'Timeout exceeded' END),
      lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, updated_at = v_now
    WHERE j.ctid = ANY (v_rows)  -- locked, so they still are what they were; to name the status would invite another walk
    RETURNING j.*
  ), recorded AS (
    INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error, worker, started_at, finished_at)
    SELECT r.id, r.attempts, 'lost', format('Lost worker %s: it stopped extending its lease', r.worker), coalesce(r.worker, ''), r.last_attempted_at, v_now FROM reaped r
  ), told AS (
    SELECT pg_notify('pgjobs', q.queue) FROM (SELECT DISTINCT r.queue FROM reaped r WHERE r.status = 'pending') q
  ) SELECT r.id, r.kind, r.queue, r.status, r.attempts, r.worker FROM reaped r CROSS JOIN (SELECT count(*) FROM told) t;  -- a LEFT JOIN whose columns nobody uses is planned away: nobody would be told
END $$;

-- reap, for workers without heartbeats, to be called now and then by any of them; each returned job waits its backoff.
-- p_batch: how many at most.
-- Index: pgjobs_reserved.
-- Returns how many lapsed reservations were returned or buried.
CREATE OR REPLACE FUNCTION pgjobs_requeue_timed_out(p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_count integer;
BEGIN
  SELECT count(*) INTO v_count FROM pgjobs_reap(p_batch, false);
  PERFORM pgjobs_rerun(r.kind, r.dedupe_key) FROM pgjobs_rerun r ORDER BY r.kind, r.dedupe_key LIMIT p_batch;
  RETURN v_count;
END $$;

-- cancel: pending → cancelled; for a reserved job a request, which the next heartbeat delivers.
-- p_ids; p_by: who, for the reader.
-- Index: the primary key.
-- Returns a row for each id: cancelled, requested, not_live (it had ended), missing, or busy (locked by others: try again).
CREATE OR REPLACE FUNCTION pgjobs_cancel(p_ids bigint[], p_by text DEFAULT '') RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_held bigint[];
  v_pending tid[];
  v_reserved tid[];
  v_others bigint[];
BEGIN
  -- What each is, is read with its lock: a status named in the UPDATE would invite a walk over the partial indexes.
  SELECT coalesce(array_agg(h.id), '{}'), array_agg(h.ctid) FILTER (WHERE h.status = 'pending'), array_agg(h.ctid) FILTER (WHERE h.status = 'reserved'),
         array_agg(h.id) FILTER (WHERE h.status NOT IN ('pending', 'reserved'))
  INTO v_held, v_pending, v_reserved, v_others
  FROM (SELECT j.id, j.ctid, j.status FROM pgjobs_job j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED) h;
  v_now := clock_timestamp();
  RETURN QUERY SELECT o, 'not_live' FROM unnest(v_others) o;
  RETURN QUERY UPDATE pgjobs_job j SET status = 'cancelled', finished_at = v_now, last_error = concat('cancelled', ' by ' || nullif(p_by, '')), error_class = NULL, updated_at = v_now
    WHERE j.ctid = ANY (v_pending) RETURNING j.id, 'cancelled';
  RETURN QUERY UPDATE pgjobs_job j SET cancel_requested_at = coalesce(j.cancel_requested_at, v_now), updated_at = v_now
    WHERE j.ctid = ANY (v_reserved) RETURNING j.id, 'requested';
  RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id) THEN 'busy' ELSE 'missing' END
    FROM (SELECT DISTINCT unnest(p_ids)) u (id) WHERE u.id <> ALL (v_held);
END $$;

-- reschedule: pending → pending at another time, priority or queue; NULL leaves a thing as it is.
-- p_ids; p_run_after, p_priority, p_queue.
-- Index: the primary key.
-- Returns a row for each id: rescheduled, not_pending, missing, or busy (locked by others: try again).
CREATE OR REPLACE FUNCTION pgjobs_reschedule(p_ids bigint[], p_run_after timestamptz DEFAULT NULL, p_priority integer DEFAULT NULL, p_queue text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_held bigint[];
  v_pending tid[];
  v_others bigint[];
BEGIN
  -- What each is, is read with its lock: a status named in the UPDATE would invite a walk over the partial indexes.
  SELECT coalesce(array_agg(h.id), '{}'), array_agg(h.ctid) FILTER (WHERE h.status = 'pending'), array_agg(h.id) FILTER (WHERE h.status <> 'pending')
  INTO v_held, v_pending, v_others
  FROM (SELECT j.id, j.ctid, j.status FROM pgjobs_job j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED) h;
  RETURN QUERY WITH moved AS (
    UPDATE pgjobs_job j SET run_after = coalesce(p_run_after, j.run_after), priority = coalesce(p_priority, j.priority), queue = coalesce(p_queue, j.queue),
      updated_at = clock_timestamp()
    WHERE j.ctid = ANY (v_pending) RETURNING j.id, j.queue
  ), told AS (
    SELECT pg_notify('pgjobs', q.queue) FROM (SELECT DISTINCT m.queue FROM moved m) q
  ) SELECT m.id, 'rescheduled' FROM moved m CROSS JOIN (SELECT count(*) FROM told) t;  -- a LEFT JOIN whose columns nobody uses is planned away: nobody would be told
  RETURN QUERY SELECT o, 'not_pending' FROM unnest(v_others) o;
  RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id) THEN 'busy' ELSE 'missing' END
    FROM (SELECT DISTINCT unnest(p_ids)) u (id) WHERE u.id <> ALL (v_held);
END $$;

-- bury, by an operator: pending → dead ("buried by NAME").
-- p_ids; p_by: who.
-- Index: the primary key.
-- Returns a row for each id: buried, not_pending, missing, or busy (locked by others: try again).
CREATE OR REPLACE FUNCTION pgjobs_bury_pending(p_ids bigint[], p_by text DEFAULT '') RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_held bigint[];
  v_pending tid[];
  v_others bigint[];
BEGIN
  -- What each is, is read with its lock: a status named in the UPDATE would invite a walk over the partial indexes.
  SELECT coalesce(array_agg(h.id), '{}'), array_agg(h.ctid) FILTER (WHERE h.status = 'pending'), array_agg(h.id) FILTER (WHERE h.status <> 'pending')
  INTO v_held, v_pending, v_others
  FROM (SELECT j.id, j.ctid, j.status FROM pgjobs_job j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED) h;
  v_now := clock_timestamp();
  RETURN QUERY SELECT o, 'not_pending' FROM unnest(v_others) o;
  RETURN QUERY UPDATE pgjobs_job j SET status = 'dead', finished_at = v_now, updated_at = v_now, error_class = NULL,
      last_error = concat_ws(E'\n', nullif(j.last_error, ''), concat('buried', ' by ' || nullif(p_by, '')))
    WHERE j.ctid = ANY (v_pending) RETURNING j.id, 'buried';
  RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id) THEN 'busy' ELSE 'missing' END
    FROM (SELECT DISTINCT unnest(p_ids)) u (id) WHERE u.id <> ALL (v_held);
END $$;

-- requeue: an operator's done, failed, dead, cancelled → pending now, with one more attempt at least. History and attempts stay.
-- p_ids.
-- Index: the primary key; pgjobs_dedupe for those with a key.
-- Returns a row for each id: requeued, key_in_use (holder: who has the dedupe key now), not_final, missing, or busy (locked by
-- others: try again). One that cannot be requeued does not stop the rest.
CREATE OR REPLACE FUNCTION pgjobs_requeue(p_ids bigint[]) RETURNS TABLE (id bigint, outcome text, holder bigint)
LANGUAGE plpgsql
-- A custom plan sees that an array is empty, takes that to imply any predicate, and may walk a partial index for nothing.
SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_held bigint[];
  v_live bigint[];
  v_keyed bigint[];
  v_plain bigint[];
  v_job record;
  v_holder bigint;
  v_moved boolean;
BEGIN
  -- What each is, is read with its lock: a status named in a WHERE would invite a walk over the partial indexes.
  SELECT coalesce(array_agg(h.id), '{}'), array_agg(h.id) FILTER (WHERE h.status IN ('pending', 'reserved')),
         array_agg(h.id) FILTER (WHERE h.status NOT IN ('pending', 'reserved') AND h.dedupe_key IS NOT NULL),
         array_agg(h.id) FILTER (WHERE h.status NOT IN ('pending', 'reserved') AND h.dedupe_key IS NULL)
  INTO v_held, v_live, v_keyed, v_plain
  FROM (SELECT j.id, j.status, j.dedupe_key FROM pgjobs_job j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED) h;
  RETURN QUERY SELECT l, 'not_final', NULL::bigint FROM unnest(v_live) l;
  -- Rows with a key one by one: another live job may hold it, and may appear at any moment.
  FOR v_job IN
    SELECT j.id, j.kind, j.dedupe_key FROM pgjobs_job j WHERE j.id = ANY (v_keyed) ORDER BY j.id
  LOOP
    v_moved := false;
    FOR v_try IN 1..10 LOOP
      SELECT j.id INTO v_holder FROM pgjobs_job j WHERE j.kind = v_job.kind AND j.dedupe_key = v_job.dedupe_key AND j.status IN ('pending', 'reserved');
      EXIT WHEN FOUND;
      BEGIN
        PERFORM pgjobs_requeue_rows(ARRAY[v_job.id]);
        v_moved := true;
        EXIT;
      EXCEPTION WHEN unique_violation THEN  -- somebody took the key just now: look who
        v_holder := NULL;
      END;
    END LOOP;
    RETURN QUERY SELECT v_job.id, CASE WHEN v_moved THEN 'requeued' ELSE 'key_in_use' END, CASE WHEN NOT v_moved THEN v_holder END;
  END LOOP;
  RETURN QUERY SELECT r, 'requeued', NULL::bigint FROM pgjobs_requeue_rows(v_plain) r;
  RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id) THEN 'busy' ELSE 'missing' END, NULL::bigint
    FROM (SELECT DISTINCT unnest(p_ids)) u (id) WHERE u.id <> ALL (v_held);
END $$;

-- The move itself, for rows that pgjobs_requeue has locked and found final.
CREATE OR REPLACE FUNCTION pgjobs_requeue_rows(p_ids bigint[]) RETURNS SETOF bigint
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY WITH moved AS (
    UPDATE pgjobs_job j SET
      status = 'pending', run_after = v_now, max_attempts = greatest(j.max_attempts, j.attempts + 1),
      result = NULL, progress = NULL, last_error = NULL, error_class = NULL, finished_at = NULL, cancel_requested_at = NULL, refunds = 0, lost = 0, suspect = false,
      expires_at = CASE WHEN j.expires_at > v_now THEN j.expires_at END,  -- or it would expire again at once
      updated_at = v_now
    WHERE j.id = ANY (p_ids) RETURNING j.id, j.queue
  ), told AS (
    SELECT pg_notify('pgjobs', q.queue) FROM (SELECT DISTINCT m.queue FROM moved m) q
  ) SELECT m.id FROM moved m CROSS JOIN (SELECT count(*) FROM told) t;  -- a LEFT JOIN whose columns nobody uses is planned away: nobody would be told
END $$;

-- expire: pending jobs past expires_at → cancelled, with the error "expired".
-- p_batch: how many at most.
-- Index: pgjobs_expire.
-- Returns how many.
CREATE OR REPLACE FUNCTION pgjobs_expire(p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_rows tid[];
BEGIN
  v_rows := ARRAY(
    SELECT j.ctid FROM pgjobs_job j WHERE j.status = 'pending' AND j.expires_at <= v_now ORDER BY j.expires_at
    LIMIT p_batch FOR NO KEY UPDATE SKIP LOCKED);
  UPDATE pgjobs_job j SET status = 'cancelled', finished_at = v_now, last_error = 'expired', error_class = NULL, updated_at = v_now
  WHERE j.ctid = ANY (v_rows);
  RETURN cardinality(v_rows);
END $$;

-- prune: final → gone, with the history of their attempts.
-- p_ids.
-- Index: the primary key; pgjobs_attempt_of_job.
-- Returns a row for each id: pruned, not_final, missing, or busy (locked by others: try again).
CREATE OR REPLACE FUNCTION pgjobs_prune(p_ids bigint[]) RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_held bigint[];
  v_final bigint[];
BEGIN
  -- What each is, is read with its lock: a status named in the DELETE would invite a walk over the partial indexes.
  SELECT coalesce(array_agg(h.id), '{}'), coalesce(array_agg(h.id) FILTER (WHERE h.status NOT IN ('pending', 'reserved')), '{}')
  INTO v_held, v_final
  FROM (SELECT j.id, j.status FROM pgjobs_job j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR UPDATE SKIP LOCKED) h;
  DELETE FROM pgjobs_job j WHERE j.id = ANY (v_final);
  DELETE FROM pgjobs_attempt a WHERE a.job_id = ANY (v_final);
  RETURN QUERY SELECT f, 'pruned' FROM unnest(v_final) f;
  RETURN QUERY SELECT h, 'not_final' FROM unnest(v_held) h WHERE h <> ALL (v_final);
  RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id) THEN 'busy' ELSE 'missing' END
    FROM (SELECT DISTINCT unnest(p_ids)) u (id) WHERE u.id <> ALL (v_held);
END $$;

-- prune, by retention: jobs of one final status that ended longer than p_age ago → gone, the oldest first.
-- p_status; p_age; p_batch: how many at most, so that a call is short.
-- Index: pgjobs_prune; pgjobs_attempt_of_job.
-- Returns how many.
CREATE OR REPLACE FUNCTION pgjobs_prune_old(p_status text, p_age interval, p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  v_before timestamptz := clock_timestamp() - p_age;
  v_gone bigint[];
BEGIN
  WITH gone AS (
    DELETE FROM pgjobs_job j WHERE j.ctid = ANY (ARRAY(
      SELECT o.ctid FROM pgjobs_job o
      WHERE o.status = p_status AND o.status IN ('done', 'failed', 'dead', 'cancelled') AND o.finished_at IS NOT NULL AND o.finished_at <= v_before
      ORDER BY o.finished_at LIMIT p_batch FOR UPDATE SKIP LOCKED))
    RETURNING j.id
  ) SELECT coalesce(array_agg(g.id), '{}') INTO v_gone FROM gone g;
  DELETE FROM pgjobs_attempt a WHERE a.job_id = ANY (v_gone);
  RETURN cardinality(v_gone);
END $$;

-- archive: jobs of one final status that ended longer than p_age ago → pgjobs_archivedjob, the oldest first; their history stays.
-- p_status; p_age; p_batch: how many at most.
-- Index: pgjobs_prune.
-- Returns how many.
CREATE OR REPLACE FUNCTION pgjobs_archive(p_status text, p_age interval, p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  v_before timestamptz := clock_timestamp() - p_age;
  v_count integer;
BEGIN
  WITH gone AS (
    DELETE FROM pgjobs_job j WHERE j.ctid = ANY (ARRAY(
      SELECT o.ctid FROM pgjobs_job o
      WHERE o.status = p_status AND o.status IN ('done', 'failed', 'dead', 'cancelled') AND o.finished_at IS NOT NULL AND o.finished_at <= v_before
      ORDER BY o.finished_at LIMIT p_batch FOR UPDATE SKIP LOCKED))
    RETURNING j.*
  ) INSERT INTO pgjobs_archivedjob (id, kind, queue, payload, priority, status, run_after, attempts, max_attempts, timeout, dedupe_key, lease,
      reserved_by, reserved_at, reserved_until, worker, worker_ids, last_error, error_class, result, progress, meta, refunds, snoozes, lost, suspect,
      cancel_requested_at, expires_at, schedule_id, scheduled_for, parent_id, created_at, updated_at, started_at, last_attempted_at, finished_at)
    SELECT g.id, g.kind, g.queue, g.payload, g.priority, g.status, g.run_after, g.attempts, g.max_attempts, g.timeout, g.dedupe_key, g.lease,
      g.reserved_by, g.reserved_at, g.reserved_until, g.worker, g.worker_ids, g.last_error, g.error_class, g.result, g.progress, g.meta, g.refunds, g.snoozes, g.lost, g.suspect,
      g.cancel_requested_at, g.expires_at, g.schedule_id, g.scheduled_for, g.parent_id, g.created_at, g.updated_at, g.started_at, g.last_attempted_at, g.finished_at
    FROM gone g;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;

-- pause: no new claims of a queue or a kind, on any worker.
-- p_scope: queue or kind; p_name; p_until: NULL until it is resumed; p_by, p_reason: for the reader.
-- Index: pgjobs_pause_name.
-- Returns nothing; a second pause of the same thing replaces the first.
CREATE OR REPLACE FUNCTION pgjobs_pause(p_scope text, p_name text, p_until timestamptz DEFAULT NULL, p_by text DEFAULT '', p_reason text DEFAULT '')
RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
  INSERT INTO pgjobs_pause AS p (scope, name, until, by, reason) VALUES (p_scope, p_name, p_until, coalesce(p_by, ''), coalesce(p_reason, ''))
  ON CONFLICT (scope, name) DO UPDATE SET until = excluded.until, by = excluded.by, reason = excluded.reason, created_at = clock_timestamp()
$$;

-- resume: end a pause, and wake the workers.
-- p_scope: queue or kind; p_name.
-- Index: pgjobs_pause_name.
-- Returns whether there was one.
CREATE OR REPLACE FUNCTION pgjobs_resume(p_scope text, p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM pgjobs_pause p WHERE p.scope = p_scope AND p.name = p_name;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM pg_notify('pgjobs', CASE WHEN p_scope = 'queue' THEN p_name ELSE '' END);
  RETURN true;
END $$;

-- When a worker has to look at the schedules again.
-- No parameters.
-- Index: none; schedules are few.
-- Returns seconds until the next tick, or until a schedule that met an error is tried again: 0 when one is due, or has no next time yet;
-- NULL when no schedule is enabled.
CREATE OR REPLACE FUNCTION pgjobs_next_tick() RETURNS double precision
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  RETURN (SELECT extract(epoch FROM min(greatest(s.next_run_at, s.retry_at, v_now)) - v_now)  -- greatest() skips NULLs
          FROM pgjobs_schedule s WHERE s.enabled AND s.retired_at IS NULL);
END $$;

-- The schedules that a worker has to look at now: a tick is due, or the next time is not known yet. It takes nothing: tick does.
-- p_limit: how many at most, the longest waiting first.
-- Index: none; schedules are few.
-- Returns what the worker needs to decide, the times as microseconds since 1970 (no session's zone is in them), read_at: now.
CREATE OR REPLACE FUNCTION pgjobs_due_ticks(p_limit integer DEFAULT 1000) RETURNS TABLE (
  id bigint, name text, kind text, queue text, payload text, payload_from text, cron text, every bigint, timezone text, misfire text, overlap text,
  max_lateness bigint, revision bigint, errors integer, next_run_at bigint, last_tick_at bigint, due_since bigint, read_at bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY SELECT s.id, s.name, s.kind, s.queue, s.payload::text, s.payload_from, s.cron, (extract(epoch FROM s.every) * 1000000)::bigint, s.timezone,
    s.misfire, s.overlap, (extract(epoch FROM s.max_lateness) * 1000000)::bigint, s.revision, s.errors,
    (extract(epoch FROM s.next_run_at) * 1000000)::bigint, (extract(epoch FROM s.last_tick_at) * 1000000)::bigint,
    (extract(epoch FROM coalesce(greatest(s.next_run_at, s.retry_at), s.updated_at)) * 1000000)::bigint, (extract(epoch FROM v_now) * 1000000)::bigint
  FROM pgjobs_schedule s
  WHERE s.enabled AND s.retired_at IS NULL AND (s.next_run_at IS NULL OR s.next_run_at <= v_now) AND (s.retry_at IS NULL OR s.retry_at <= v_now)
  ORDER BY greatest(s.next_run_at, s.retry_at), s.id LIMIT p_limit;
END $$;

-- tick: fire what is due of one schedule. Its ticks, their jobs and the schedule's next time are one transaction: the caller's statement.
-- p_id, p_revision, p_next_run_at: the schedule as the caller read it; any difference, and this call changes nothing. p_times: the nominal
-- times to fire, ascending; p_missed: the last one that is left out, or NULL; p_following: the next time; p_note: what people should know.
-- The rest: the job, as for enqueue; p_once: at most one of its jobs lives, whatever the overlap.
-- Index: pgjobs_tick_once, pgjobs_dedupe, pgjobs_rerun_key.
-- Returns a row for each tick; none when another worker was first, when the schedule was edited, or when nothing is due by the database's clock.
CREATE OR REPLACE FUNCTION pgjobs_tick(
  p_id bigint, p_revision bigint, p_next_run_at timestamptz, p_times timestamptz[], p_missed timestamptz, p_following timestamptz, p_note text,
  p_kind text, p_payload jsonb, p_priority integer, p_max_attempts integer, p_timeout interval, p_queue text, p_meta jsonb, p_once boolean DEFAULT false
) RETURNS TABLE (scheduled_for timestamptz, outcome text, job_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_schedule pgjobs_schedule;
  v_overlap text;
  v_key text;
  v_time timestamptz;
  v_outcome text;
  v_job record;
  v_skipped integer := 0;
  v_last timestamptz;
BEGIN
  SELECT * INTO v_schedule FROM pgjobs_schedule s
  WHERE s.id = p_id AND s.revision = p_revision AND s.next_run_at = p_next_run_at AND s.next_run_at <= v_now AND s.enabled AND s.retired_at IS NULL
  FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;
  v_last := v_schedule.last_tick_at;
  v_overlap := CASE WHEN p_once THEN 'skip' ELSE v_schedule.overlap END;
  -- One live job of a schedule is what one live job of a key is, and a wish for a rerun is the one that waits behind it.
  v_key := CASE WHEN v_overlap <> 'allow' THEN 'pgjobs schedule ' || p_id END;
  IF p_missed > v_last OR (p_missed IS NOT NULL AND v_last IS NULL) THEN
    INSERT INTO pgjobs_tick (schedule_id, scheduled_for, outcome) VALUES (p_id, p_missed, 'missed') ON CONFLICT DO NOTHING;
    v_last := p_missed;
    RETURN QUERY SELECT p_missed, 'missed', NULL::bigint;
  END IF;
  FOREACH v_time IN ARRAY p_times LOOP
    IF v_time > v_now THEN
      RAISE EXCEPTION 'tick: % is in the future by the database''s clock', v_time USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CONTINUE WHEN v_time <= v_last  -- the clock went back: it was fired
      OR EXISTS (SELECT FROM pgjobs_tick t WHERE t.schedule_id = p_id AND t.scheduled_for = v_time);
    v_last := v_time;
    v_outcome := 'skipped';
    SELECT NULL::bigint AS id INTO v_job;
    IF v_overlap <> 'queue_one' OR NOT EXISTS (SELECT FROM pgjobs_rerun r WHERE r.kind = p_kind AND r.dedupe_key = v_key) THEN
      SELECT e.id, e.created, e.action INTO v_job FROM pgjobs_enqueue(
        p_kind, p_payload, NULL, p_priority, v_key, p_max_attempts, p_timeout, p_queue, CASE v_overlap WHEN 'queue_one' THEN 'rerun' ELSE 'keep' END,
        NULL, p_meta, NULL, p_id, v_time) e;
      v_outcome := CASE v_job.action WHEN 'created' THEN 'enqueued' WHEN 'rerun' THEN 'queued' ELSE 'skipped' END;
    END IF;
    v_skipped := v_skipped + (v_outcome = 'skipped')::integer;
    INSERT INTO pgjobs_tick AS t (schedule_id, scheduled_for, outcome, job_id)
    VALUES (p_id, v_time, v_outcome, CASE v_outcome WHEN 'enqueued' THEN v_job.id END);
    RETURN QUERY SELECT v_time, v_outcome, CASE v_outcome WHEN 'enqueued' THEN v_job.id END;
  END LOOP;
  IF p_following <= greatest(v_last, p_next_run_at) THEN
    RAISE EXCEPTION 'tick: the next time, %, does not come after %', p_following, greatest(v_last, p_next_run_at) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  UPDATE pgjobs_schedule s SET next_run_at = p_following, last_tick_at = v_last, skipped = s.skipped + v_skipped, errors = 0, last_error = p_note,
    retry_at = NULL, updated_at = v_now
  WHERE s.id = p_id;
END $$;

-- plan_tick: give a schedule that has no next time the one that a worker computed; the zone too, when it has none.
-- p_id, p_revision: the schedule as the caller read it; p_next_run_at: the time; p_timezone: the worker's own zone.
-- Index: the primary key.
-- Returns whether it did; not when another worker was first, when the schedule was edited, or while somebody holds its row.
CREATE OR REPLACE FUNCTION pgjobs_plan_tick(p_id bigint, p_revision bigint, p_next_run_at timestamptz, p_timezone text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
BEGIN
  UPDATE pgjobs_schedule s SET next_run_at = p_next_run_at, timezone = CASE s.timezone WHEN '' THEN p_timezone ELSE s.timezone END,
    errors = 0, last_error = '', retry_at = NULL, updated_at = clock_timestamp()
  WHERE s.id = ANY (ARRAY(
    SELECT o.id FROM pgjobs_schedule o WHERE o.id = p_id AND o.revision = p_revision AND o.next_run_at IS NULL FOR NO KEY UPDATE SKIP LOCKED));
  RETURN FOUND;
END $$;

-- tick_failed: what a schedule's tick could not do is written on it, and it is left alone for a while; its time stays, so the tick is not lost.
-- p_id, p_revision, p_errors: the schedule as the caller read it, so that ten workers count one error; p_error; p_pause: for how long.
-- Index: the primary key.
-- Returns whether it was written.
CREATE OR REPLACE FUNCTION pgjobs_tick_failed(p_id bigint, p_revision bigint, p_errors integer, p_error text, p_pause interval) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  UPDATE pgjobs_schedule s SET errors = s.errors + 1, last_error = p_error, retry_at = v_now + p_pause, updated_at = v_now
  WHERE s.id = ANY (ARRAY(
    SELECT o.id FROM pgjobs_schedule o WHERE o.id = p_id AND o.revision = p_revision AND o.errors = p_errors FOR NO KEY UPDATE SKIP LOCKED));
  RETURN FOUND;
END $$;

-- prune_ticks: old ticks whose job is gone → gone. A tick outlives its job; what keeps a time from firing again is the schedule's last_tick_at.
-- p_age: younger ones stay; p_batch: how many at most of each schedule, so that a call is short. Where jobs are kept for long, millions of
-- ticks stay as well: a call looks at ten times p_batch at most, half of them the oldest and, if none of those goes, half anywhere.
-- Index: pgjobs_tick_once, and the jobs' primary key.
-- Returns how many.
CREATE OR REPLACE FUNCTION pgjobs_prune_ticks(p_age interval, p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  v_before timestamptz := clock_timestamp() - p_age;
  v_id bigint;
  v_from timestamptz;
  v_first timestamptz;
  v_last timestamptz;
  v_seen bigint;
  v_count integer := 0;
  v_gone integer;
BEGIN
  FOR v_id IN SELECT s.id FROM pgjobs_schedule s ORDER BY s.id LOOP
    v_from := '-infinity';
    FOR v_try IN 1..2 LOOP
      SELECT min(w.scheduled_for), max(w.scheduled_for), count(*) INTO v_first, v_last, v_seen FROM (
        SELECT o.scheduled_for FROM pgjobs_tick o WHERE o.schedule_id = v_id AND o.scheduled_for >= v_from AND o.scheduled_for < v_before
        ORDER BY o.scheduled_for LIMIT 5 * p_batch) w;
      DELETE FROM pgjobs_tick t WHERE t.ctid = ANY (ARRAY(
        SELECT o.ctid FROM pgjobs_tick o
        WHERE o.schedule_id = v_id AND o.scheduled_for >= v_first AND o.scheduled_for <= v_last AND o.created_at < v_before
          AND NOT EXISTS (SELECT FROM pgjobs_job j WHERE j.id = o.job_id)
        ORDER BY o.scheduled_for LIMIT p_batch FOR UPDATE SKIP LOCKED));
      GET DIAGNOSTICS v_gone = ROW_COUNT;
      v_count := v_count + v_gone;
      EXIT WHEN v_gone > 0 OR v_seen < 5 * p_batch;
      -- Anywhere between the oldest and the youngest that are old enough: there may be long gaps before and after.
      SELECT o.scheduled_for INTO v_last FROM pgjobs_tick o WHERE o.schedule_id = v_id AND o.scheduled_for < v_before ORDER BY o.scheduled_for DESC LIMIT 1;
      v_from := v_first + random() * (v_last - v_first);
    END LOOP;
  END LOOP;
  RETURN v_count;
END $$;

-- run_now: → pending: a job of a schedule outside its ticks. The schedule itself is left alone.
-- p_id, p_scheduled_for: the schedule, and its job's nominal time; p_key, p_since: at most one job of this key since then, whether it has ended or not (NULL: always a new one); the rest:
-- as for enqueue.
-- Index: pgjobs_dedupe for a live job of the key, pgjobs_finished for one that has ended.
-- Returns the job, or that of an earlier call with the key, and whether it was created.
CREATE OR REPLACE FUNCTION pgjobs_run_now(
  p_id bigint, p_scheduled_for timestamptz, p_key text, p_since timestamptz, p_kind text, p_payload jsonb, p_priority integer, p_max_attempts integer, p_timeout interval,
  p_queue text, p_meta jsonb
) RETURNS TABLE (id bigint, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  v_key text := CASE WHEN p_key IS NOT NULL THEN concat_ws(' ', 'pgjobs run', p_id, (extract(epoch FROM p_since) * 1000000)::bigint, p_key) END;
  v_job record;
  v_ended bigint;
BEGIN
  SELECT e.id, e.created INTO v_job FROM pgjobs_enqueue(
    p_kind, p_payload, NULL, p_priority, v_key, p_max_attempts, p_timeout, p_queue, 'keep', NULL, p_meta, NULL, p_id, p_scheduled_for) e;
  IF v_key IS NOT NULL AND v_job.created THEN
    -- No live job had the key. One that has ended is looked for only now: it can have ended since any earlier look.
    -- An aggregate that no index answers: min(id) would invite a walk over the primary key.
    SELECT (array_agg(j.id))[1] INTO v_ended FROM pgjobs_job j
    WHERE j.kind = p_kind AND j.status IN ('done', 'failed', 'dead', 'cancelled') AND j.finished_at >= p_since AND j.dedupe_key = v_key;
    IF v_ended IS NOT NULL THEN
      DELETE FROM pgjobs_job j WHERE j.id = v_job.id;  -- nobody has seen it
      v_job.id := v_ended;
      v_job.created := false;
    END IF;
  END IF;
  RETURN QUERY SELECT v_job.id, v_job.created;
END $$;

-- declaration_state: which place a set of declared schedules has among those that a project's code has declared; the one in force is marked as seen.
-- p_project; p_fingerprint: of the set; p_patience: as for sync_schedules.
-- Index: pgjobs_declaration_once.
-- Returns current; outdated: another one is in force; stale: another one was, and has not been seen for p_patience; unknown.
CREATE OR REPLACE FUNCTION pgjobs_declaration_state(p_project text, p_fingerprint text, p_patience interval DEFAULT interval '5 minutes') RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_current pgjobs_declaration;
BEGIN
  SELECT * INTO v_current FROM pgjobs_declaration d WHERE d.project = p_project ORDER BY d.current_since DESC, d.id DESC LIMIT 1;
  IF v_current.fingerprint = p_fingerprint THEN
    -- Ten workers need not write ten times.
    UPDATE pgjobs_declaration d SET seen_at = v_now WHERE d.id = ANY (ARRAY(
      SELECT o.id FROM pgjobs_declaration o WHERE o.id = v_current.id AND o.seen_at < v_now - p_patience / 20 FOR NO KEY UPDATE SKIP LOCKED));
    RETURN 'current';
  END IF;
  RETURN CASE WHEN v_current.id IS NULL THEN 'unknown' WHEN v_current.seen_at > v_now - p_patience THEN 'outdated' ELSE 'stale' END;
END $$;

-- sync_schedules: the schedules that a project's code declares → rows. What left the code is retired; what returned starts from now. Whether a
-- schedule is enabled is not the code's to say.
-- p_project; p_fingerprint: of the whole declaration; p_declared: an array of name, kind, queue, payload, payload_from, cron, every (seconds),
-- timezone (null: as it is, for a new row p_zone), misfire, overlap, max_lateness (seconds); p_patience: how long the declaration in force may go
-- unseen before another one that was in force earlier takes its place (a code that is new here does at once); p_force: it does at once, too.
-- Index: pgjobs_declaration_once and the unique name.
-- Returns a name and what was done: created, updated, restored, retired, busy (somebody holds the row: call again), taken (an admin's, or another
-- project's, has the name); a row of ('', outdated) alone when newer code is in force: nothing was changed.
CREATE OR REPLACE FUNCTION pgjobs_sync_schedules(
  p_project text, p_fingerprint text, p_declared jsonb, p_zone text, p_patience interval DEFAULT interval '5 minutes', p_force boolean DEFAULT false
) RETURNS TABLE (name text, action text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_current pgjobs_declaration;
  v_new record;
  v_old pgjobs_schedule;
BEGIN
  -- Siblings that start together go one after the other.
  PERFORM pg_advisory_xact_lock(hashtext('pgjobs_sync_schedules'), hashtext(p_project));
  v_now := clock_timestamp();
  SELECT * INTO v_current FROM pgjobs_declaration d WHERE d.project = p_project ORDER BY d.current_since DESC, d.id DESC LIMIT 1;
  IF v_current.fingerprint = p_fingerprint THEN
    UPDATE pgjobs_declaration d SET seen_at = v_now WHERE d.id = v_current.id;
  ELSIF v_current.id IS NULL AND p_declared = '[]' THEN
    RETURN;  -- no schedules in the code, and never any
  ELSIF NOT p_force AND v_current.seen_at > v_now - p_patience
        AND EXISTS (SELECT FROM pgjobs_declaration d WHERE d.project = p_project AND d.fingerprint = p_fingerprint) THEN
    RETURN QUERY SELECT '', 'outdated';
    RETURN;
  ELSE
    INSERT INTO pgjobs_declaration AS d (project, fingerprint, current_since, seen_at)
    VALUES (p_project, p_fingerprint, greatest(v_now, v_current.current_since + interval '1 microsecond'), v_now)
    ON CONFLICT (project, fingerprint) DO UPDATE SET current_since = excluded.current_since, seen_at = excluded.seen_at;
    DELETE FROM pgjobs_declaration d WHERE d.project = p_project AND d.seen_at < v_now - interval '1 year';
  END IF;

  FOR v_new IN
    SELECT d.* FROM jsonb_to_recordset(p_declared) AS d (
      name text, kind text, queue text, payload jsonb, payload_from text, cron text, every double precision, timezone text, misfire text,
      overlap text, max_lateness double precision) ORDER BY d.name
  LOOP
    name := v_new.name;
    SELECT * INTO v_old FROM pgjobs_schedule s WHERE s.name = v_new.name FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      IF EXISTS (SELECT FROM pgjobs_schedule s WHERE s.name = v_new.name) THEN
        action := 'busy';
        RETURN NEXT;
        CONTINUE;
      END IF;
      INSERT INTO pgjobs_schedule (name, kind, queue, payload, payload_from, cron, every, timezone, misfire, overlap, max_lateness, source, project)
      VALUES (v_new.name, v_new.kind, v_new.queue, v_new.payload, v_new.payload_from, v_new.cron, make_interval(secs => v_new.every),
              coalesce(v_new.timezone, p_zone), v_new.misfire, v_new.overlap, make_interval(secs => v_new.max_lateness), 'code', p_project)
      ON CONFLICT DO NOTHING;
      action := CASE WHEN FOUND THEN 'created' ELSE 'busy' END;
      RETURN NEXT;
    ELSIF v_old.source <> 'code' OR v_old.project <> p_project THEN
      action := 'taken';
      RETURN NEXT;
    ELSIF v_old.retired_at IS NOT NULL
       OR (v_old.kind, v_old.queue, v_old.payload, v_old.payload_from, v_old.cron, v_old.every, v_old.misfire, v_old.overlap, v_old.max_lateness)
          IS DISTINCT FROM (v_new.kind, v_new.queue, v_new.payload, v_new.payload_from, v_new.cron, make_interval(secs => v_new.every), v_new.misfire,
                            v_new.overlap, make_interval(secs => v_new.max_lateness))
       OR v_old.timezone <> v_new.timezone THEN
      UPDATE pgjobs_schedule s SET kind = v_new.kind, queue = v_new.queue, payload = v_new.payload, payload_from = v_new.payload_from, cron = v_new.cron,
        every = make_interval(secs => v_new.every), timezone = coalesce(v_new.timezone, s.timezone), misfire = v_new.misfire, overlap = v_new.overlap,
        max_lateness = make_interval(secs => v_new.max_lateness), retired_at = NULL
      WHERE s.id = v_old.id;
      action := CASE WHEN v_old.retired_at IS NULL THEN 'updated' ELSE 'restored' END;
      RETURN NEXT;
    END IF;
  END LOOP;

  RETURN QUERY UPDATE pgjobs_schedule s SET retired_at = v_now WHERE s.id = ANY (ARRAY(
      SELECT o.id FROM pgjobs_schedule o
      WHERE o.source = 'code' AND o.project = p_project AND o.retired_at IS NULL
        AND NOT EXISTS (SELECT FROM jsonb_array_elements(p_declared) d WHERE d ->> 'name' = o.name)
      ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED)) RETURNING s.name, 'retired';
  RETURN QUERY SELECT s.name, 'busy' FROM pgjobs_schedule s
    WHERE s.source = 'code' AND s.project = p_project AND s.retired_at IS NULL
      AND NOT EXISTS (SELECT FROM jsonb_array_elements(p_declared) d WHERE d ->> 'name' = s.name);
END $$;

-- What happens by itself, whoever edits a schedule: what changes the rule lets it start from now, and workers hear of it.
-- No parameters.
-- Index: pgjobs_tick_once, when a schedule is deleted.
-- Returns nothing.

-- A change of what is fired raises the revision, which every worker's tick names: one that read the old row changes nothing. A change
-- of when it is fired, enabled and retired included, also empties next_run_at (unless the same UPDATE gives one): a worker computes it
-- from now, so that nothing is caught up.
CREATE OR REPLACE FUNCTION pgjobs_schedule_edited() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  NEW.revision := OLD.revision + 1;
  NEW.errors := 0;
  NEW.last_error := '';
  NEW.retry_at := NULL;
  NEW.updated_at := clock_timestamp();
  IF (NEW.cron, NEW.every, NEW.enabled, NEW.retired_at IS NULL) IS DISTINCT FROM (OLD.cron, OLD.every, OLD.enabled, OLD.retired_at IS NULL)
     OR NEW.timezone <> OLD.timezone THEN
    NEW.next_run_at := CASE WHEN NEW.next_run_at IS DISTINCT FROM OLD.next_run_at THEN NEW.next_run_at END;
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_schedule_edited BEFORE UPDATE ON pgjobs_schedule FOR EACH ROW
WHEN ((OLD.name, OLD.kind, OLD.queue, OLD.payload, OLD.payload_from, OLD.cron, OLD.every, OLD.misfire, OLD.overlap, OLD.max_lateness, OLD.enabled,
       OLD.retired_at IS NULL) IS DISTINCT FROM
      (NEW.name, NEW.kind, NEW.queue, NEW.payload, NEW.payload_from, NEW.cron, NEW.every, NEW.misfire, NEW.overlap, NEW.max_lateness, NEW.enabled,
       NEW.retired_at IS NULL)
      -- An empty zone is filled in by the worker that computes the first time; that is no edit.
      OR (NEW.timezone <> OLD.timezone AND OLD.timezone <> ''))
EXECUTE FUNCTION pgjobs_schedule_edited();

CREATE OR REPLACE FUNCTION pgjobs_schedule_announced() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pg_notify('pgjobs_schedule', '');
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_schedule_inserted AFTER INSERT ON pgjobs_schedule FOR EACH ROW EXECUTE FUNCTION pgjobs_schedule_announced();
-- Ticks move next_run_at forward, which wakes nobody.
CREATE OR REPLACE TRIGGER pgjobs_schedule_updated AFTER UPDATE ON pgjobs_schedule FOR EACH ROW
WHEN (NEW.revision <> OLD.revision OR (NEW.next_run_at IS NULL AND OLD.next_run_at IS NOT NULL) OR NEW.next_run_at < OLD.next_run_at)
EXECUTE FUNCTION pgjobs_schedule_announced();

CREATE OR REPLACE FUNCTION pgjobs_schedule_deleted() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM pgjobs_tick t WHERE t.schedule_id = OLD.id;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_schedule_deleted AFTER DELETE ON pgjobs_schedule FOR EACH ROW EXECUTE FUNCTION pgjobs_schedule_deleted();

-- beat: all that a keeper does each few seconds, in one statement: its worker's row, heartbeat, reap, expiry, wishes left over.
-- p_worker … p_stopping: the row for people; p_ids, p_leases: the jobs held, pair by pair; p_lease: how long to hold from now.
-- Index: those of heartbeat, reap and expire.
-- Returns events: a verdict of heartbeat but held (id), reaped (all of reap), expired (attempts: how many), suspects (there are
-- jobs of these queues and kinds that must run alone), and next (seconds until the first lease of another worker lapses).
CREATE OR REPLACE FUNCTION pgjobs_beat(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_exclude_queues text[], p_kinds text[], p_threads integer, p_running integer,
  p_stopping boolean, p_ids bigint[], p_leases bigint[], p_lease interval, p_batch integer DEFAULT 1000
) RETURNS TABLE (event text, id bigint, kind text, queue text, status text, attempts integer, worker text, seconds double precision)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT 'tick', NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text, n.seconds
    FROM pgjobs_next_tick() n (seconds) WHERE n.seconds IS NOT NULL;
  RETURN QUERY SELECT h.verdict, h.id, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text, NULL::double precision
    FROM pgjobs_heartbeat(p_ids, p_leases, p_lease) h WHERE h.verdict <> 'held';
  RETURN QUERY SELECT 'reaped', r.id, r.kind, r.queue, r.status, r.attempts, r.worker, NULL::double precision FROM pgjobs_reap(p_batch) r;
  RETURN QUERY SELECT 'expired', NULL::bigint, NULL::text, NULL::text, NULL::text, e.n, NULL::text, NULL::double precision
    FROM pgjobs_expire(p_batch) e (n) WHERE e.n > 0;
  PERFORM pgjobs_rerun(r.kind, r.dedupe_key) FROM (SELECT * FROM pgjobs_rerun ORDER BY kind, dedupe_key LIMIT p_batch) r;
  -- Rows for people: whoever holds them must not hold up the leases. (An upsert would wait, and so would a plain DELETE.)
  UPDATE pgjobs_worker w SET running = p_running, stopping = p_stopping, beat_at = clock_timestamp()
    WHERE w.ctid = ANY (ARRAY(SELECT o.ctid FROM pgjobs_worker o WHERE o.name = p_worker FOR NO KEY UPDATE SKIP LOCKED));
  IF NOT FOUND AND NOT EXISTS (SELECT FROM pgjobs_worker w WHERE w.name = p_worker) THEN
    INSERT INTO pgjobs_worker (name, host, pid, queues, exclude_queues, kinds, threads, running, stopping)
    VALUES (p_worker, p_host, p_pid, p_queues, p_exclude_queues, p_kinds, p_threads, p_running, p_stopping) ON CONFLICT DO NOTHING;
  END IF;
  DELETE FROM pgjobs_worker w WHERE w.ctid = ANY (ARRAY(
    SELECT o.ctid FROM pgjobs_worker o WHERE o.beat_at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED));
  RETURN QUERY SELECT 'suspects', NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text, NULL::double precision
    WHERE EXISTS (SELECT FROM pgjobs_job j WHERE j.status = 'pending' AND j.suspect AND j.run_after <= clock_timestamp() AND j.kind = ANY (p_kinds)
      AND (cardinality(p_queues) = 0 OR j.queue = ANY (p_queues)) AND j.queue <> ALL (p_exclude_queues)
      AND (j.expires_at IS NULL OR j.expires_at > clock_timestamp()) AND NOT EXISTS (
        SELECT FROM pgjobs_pause p WHERE (p.until IS NULL OR p.until > clock_timestamp())
          AND (p.scope = 'queue' AND p.name = j.queue OR p.scope = 'kind' AND p.name = j.kind)));  -- else a process would start for nothing
  RETURN QUERY SELECT 'next', NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text,
    extract(epoch FROM min(j.reserved_until) - clock_timestamp())::double precision
    FROM pgjobs_job j WHERE j.status = 'reserved' AND j.reserved_by <> p_worker HAVING min(j.reserved_until) IS NOT NULL;
END $$;

-- undertake: end what a dead worker process held, as far as its supervisor knows where each job stood.
-- p_returned: jobs whose handler had returned → done (without their result). p_running: jobs in a handler, or that had raised.
-- One: its attempt counts, as a crash. Several: nobody knows which was guilty, so all are given back with the attempt refunded.
-- All of them are suspects from now on, and run alone. The rest of its reservations had not started → pending, the attempt
-- refunded. p_cause: for the history.
-- Index: the primary key; pgjobs_reserved.
-- Returns events: crashed (with the new status), suspect, released; and left (attempts: how many rows others lock still).
CREATE OR REPLACE FUNCTION pgjobs_undertake(
  p_worker text, p_running bigint[], p_running_leases bigint[], p_returned bigint[], p_returned_leases bigint[], p_cause text
) RETURNS TABLE (event text, id bigint, kind text, queue text, status text, attempts integer)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_alone boolean := cardinality(p_running) = 1;
  v_rows tid[];
BEGIN
  PERFORM pgjobs_finish_many(p_returned, p_returned_leases, NULL,
    (SELECT jsonb_object_agg(r::text, 'result not stored: ' || p_cause) FROM unnest(p_returned) r));

  SELECT coalesce(array_agg(x.ctid), '{}') INTO v_rows FROM (SELECT * FROM unnest(p_running, p_running_leases) u (id, lease) ORDER BY u.id) h
  CROSS JOIN LATERAL (SELECT j.ctid FROM pgjobs_job j WHERE j.id = h.id AND j.lease = h.lease FOR NO KEY UPDATE SKIP LOCKED) x;
  RETURN QUERY WITH moved AS (
    UPDATE pgjobs_job j SET
      status = CASE WHEN j.cancel_requested_at IS NOT NULL THEN 'cancelled' WHEN v_alone AND j.attempts >= j.max_attempts THEN 'dead' ELSE 'pending' END,
      finished_at = CASE WHEN j.cancel_requested_at IS NOT NULL OR v_alone AND j.attempts >= j.max_attempts THEN v_now END,
      run_after = CASE WHEN v_alone AND j.lost > 0 THEN pgjobs_next_run_after(j.attempts) ELSE v_now END,
      attempts = CASE WHEN v_alone THEN j.attempts ELSE j.attempts - 1 END,
      worker_ids = CASE WHEN v_alone THEN j.worker_ids ELSE trim_array(j.worker_ids, least(cardinality(j.worker_ids), 1)) END,
      lost = CASE WHEN v_alone THEN least(j.lost + 1, 32767) ELSE j.lost END,
      refunds = CASE WHEN v_alone THEN j.refunds ELSE least(j.refunds + 1, 32767) END,
      suspect = true, last_error = p_cause, error_class = NULL,
      lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, updated_at = v_now
    WHERE j.ctid = ANY (v_rows) RETURNING j.*
  ), recorded AS (
    INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error, worker, started_at, finished_at)
    SELECT m.id, m.attempts + CASE WHEN v_alone THEN 0 ELSE 1 END, 'crashed',
      CASE WHEN v_alone THEN p_cause ELSE p_cause || format(' (one of %s that ran: given back, to run alone)', cardinality(p_running)) END,
      coalesce(m.worker, ''), m.last_attempted_at, v_now FROM moved m
  ), told AS (
    SELECT pg_notify('pgjobs', q.queue) FROM (SELECT DISTINCT m.queue FROM moved m WHERE m.status = 'pending') q
  ) SELECT CASE WHEN v_alone THEN 'crashed' ELSE 'suspect' END, m.id, m.kind, m.queue, m.status, m.attempts
    FROM moved m CROSS JOIN (SELECT count(*) FROM told) t;  -- not a LEFT JOIN, which would be planned away: nobody would be told

  RETURN QUERY SELECT 'released', r.id, NULL::text, NULL::text, r.outcome, NULL::integer
  FROM pgjobs_release_unknown(p_worker, p_running || p_returned) r WHERE r.outcome NOT IN ('busy', 'lost');
  DELETE FROM pgjobs_worker w WHERE w.name = p_worker;
  RETURN QUERY SELECT 'left', NULL::bigint, NULL::text, NULL::text, NULL::text, count(*)::integer FROM pgjobs_job j
    WHERE j.status = 'reserved' AND j.reserved_by = p_worker HAVING count(*) > 0;
END $$;

-- What happens by itself, whoever writes: a new job wakes workers, an ended one gives its wish for a rerun a life, updated_at is kept.
-- No parameters.
-- Index: those of rerun.
-- Returns nothing.

-- One notification for each queue and statement, and only for what comes due within the hour. `SET LOCAL pgjobs.notify = off`
-- silences a transaction. Committing a notification takes a lock that is one for the whole server, so nobody is told unless a
-- worker sleeps. (A worker that falls asleep before this transaction commits looks again until such transactions have ended.)
-- It names nothing of a schema, so it needs no search_path of its own: setting one takes a third of its time.
CREATE OR REPLACE FUNCTION pgjobs_job_inserted() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  c_table CONSTANT integer := (TG_RELID::bigint - 2147483648)::integer;  -- the keys of bell, without a call of it
  v_all boolean;
  v_queue text;
BEGIN
  -- Each lock is taken at session level and given back at once: one that is kept until the commit would silence all others.
  v_all := NOT pg_try_advisory_lock(1885825898, c_table);  -- a worker that serves all queues sleeps
  IF NOT v_all THEN PERFORM pg_advisory_unlock(1885825898, c_table); END IF;
  FOR v_queue IN SELECT DISTINCT n.queue FROM inserted n WHERE n.status = 'pending' AND n.run_after < clock_timestamp() + interval '1 hour' LOOP
    IF NOT v_all AND pg_try_advisory_lock(hashtext(v_queue), c_table) THEN
      PERFORM pg_advisory_unlock(hashtext(v_queue), c_table);
    ELSE
      PERFORM pg_notify('pgjobs', v_queue);
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_job_inserted AFTER INSERT ON pgjobs_job REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT
WHEN (current_setting('pgjobs.notify', true) IS DISTINCT FROM 'off') EXECUTE FUNCTION pgjobs_job_inserted();

CREATE OR REPLACE FUNCTION pgjobs_job_ended() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pgjobs_rerun(OLD.kind, OLD.dedupe_key);
  RETURN NULL;
END $$;
-- (Each statement reads the text of WHEN anew, so it is short: final is the same as finished_at, by a CHECK.)
CREATE OR REPLACE TRIGGER pgjobs_job_ended AFTER UPDATE OF status ON pgjobs_job FOR EACH ROW
WHEN (OLD.dedupe_key IS NOT NULL AND OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL)
EXECUTE FUNCTION pgjobs_job_ended();
CREATE OR REPLACE TRIGGER pgjobs_job_deleted AFTER DELETE ON pgjobs_job FOR EACH ROW
WHEN (OLD.dedupe_key IS NOT NULL AND OLD.finished_at IS NULL) EXECUTE FUNCTION pgjobs_job_ended();

-- A wish that was made while the holder ran, and is committed after it ended, would meet nobody: it looks for itself at commit.
-- (Should the holder end in the very moment of the commit, the next beat of any worker finds the wish.)
CREATE OR REPLACE FUNCTION pgjobs_rerun_wished() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pgjobs_rerun(NEW.kind, NEW.dedupe_key);
  RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS pgjobs_rerun_wished ON pgjobs_rerun;
CREATE CONSTRAINT TRIGGER pgjobs_rerun_wished AFTER INSERT OR UPDATE ON pgjobs_rerun DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
EXECUTE FUNCTION pgjobs_rerun_wished();

CREATE OR REPLACE FUNCTION pgjobs_job_touched() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.updated_at := clock_timestamp();
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_job_touched BEFORE UPDATE ON pgjobs_job FOR EACH ROW
WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION pgjobs_job_touched();

SELECT set_config('search_path', current_setting('pgjobs.search_path'), true);
