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
