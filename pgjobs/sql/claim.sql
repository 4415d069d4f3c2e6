-- claim: pending → reserved, for at most p_limit due jobs: highest priority first, then run_after, then id, across queues.
-- p_queues NULL: all; p_kinds NULL: all; p_lease: how long to hold (NULL: each job's own timeout, an hour when it has none);
-- p_suspects: true for only those that must run alone, false for none of them, NULL for all.
-- Index: pgjobs_claim. For each queue the priorities that exist are probed from the top, and of each only the due range is
-- read, so that a mountain of future jobs costs one probe.
-- Returns the claimed rows in that order, all with one new lease. Rows that others hold are passed over; no lock stays on a
-- row that is not taken.
CREATE OR REPLACE FUNCTION pgjobs_claim(
  p_limit integer, p_worker text, p_queues text[] DEFAULT NULL, p_lease interval DEFAULT NULL,
  p_kinds text[] DEFAULT NULL, p_exclude_queues text[] DEFAULT NULL, p_suspects boolean DEFAULT NULL
) RETURNS SETOF pgjobs_job
LANGUAGE plpgsql
-- Statistics of a table that fills and empties all day mislead the planner; these leave it the index alone. (jit = off: the
-- cost of a plan node that is switched off is so high that each call would be compiled, for a quarter of a second.)
SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET enable_sort = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  -- 63 random bits, never from a sequence: an unflushed one repeats after a crash of the server.
  v_token bigint := hashtextextended(gen_random_uuid()::text, 0) & 9223372036854775807;
  v_no_queues text[];
  v_no_kinds text[];
  v_queues text[] := '{}';     -- queues with pending rows that may still give some
  v_heads smallint[] := '{}';  -- for each, the highest priority not yet read
  v_level smallint;
  v_members text[];
  v_queue text := '';
  v_low_at timestamptz; v_low_id bigint;
  v_cut_at timestamptz; v_cut_id bigint;
  v_rows tid[] := '{}';
BEGIN
  IF coalesce(p_limit, 0) < 1 THEN RETURN; END IF;
  IF coalesce(p_worker, '') = '' THEN
    RAISE EXCEPTION 'p_worker has to name the worker' USING ERRCODE = 'invalid_parameter_value';
  END IF;
  SELECT coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'queue'), '{}'), coalesce(array_agg(p.name) FILTER (WHERE p.scope = 'kind'), '{}')
  INTO v_no_queues, v_no_kinds FROM pgjobs_pause p WHERE p.until IS NULL OR p.until > v_now;
  v_no_queues := v_no_queues || coalesce(p_exclude_queues, '{}');

  IF p_suspects THEN  -- few, by an index of their own (pgjobs_suspects)
    v_rows := ARRAY(
      SELECT j.ctid FROM pgjobs_job j
      WHERE j.status = 'pending' AND j.suspect AND j.run_after <= v_now
        AND (p_queues IS NULL OR j.queue = ANY (p_queues)) AND j.queue <> ALL (v_no_queues)
        AND (p_kinds IS NULL OR j.kind = ANY (p_kinds)) AND j.kind <> ALL (v_no_kinds) AND (j.expires_at IS NULL OR j.expires_at > v_now)
      ORDER BY j.id LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED);
  END IF;

  LOOP  -- a loose index scan: the queues that have pending rows
    EXIT WHEN p_suspects;
    SELECT j.queue, j.priority INTO v_queue, v_level FROM pgjobs_job j WHERE j.status = 'pending' AND j.queue > v_queue ORDER BY j.queue, j.priority DESC LIMIT 1;
    EXIT WHEN NOT FOUND;
    IF (p_queues IS NULL OR v_queue = ANY (p_queues)) AND v_queue <> ALL (v_no_queues) THEN
      v_queues := v_queues || v_queue;
      v_heads := v_heads || v_level;
    END IF;
  END LOOP;

  WHILE cardinality(v_queues) > 0 AND cardinality(v_rows) < p_limit LOOP
    SELECT max(h) INTO v_level FROM unnest(v_heads) h;
    SELECT array_agg(u.q) INTO v_members FROM unnest(v_queues, v_heads) u (q, h) WHERE u.h = v_level;
    v_low_at := '-infinity'; v_low_id := 0;
    LOOP
      v_cut_at := 'infinity'; v_cut_id := 9223372036854775807;
      IF cardinality(v_members) > 1 THEN  -- where the merge of these queues reaches the limit; read without a lock
        SELECT c.run_after, c.id INTO v_cut_at, v_cut_id FROM unnest(v_members) m (queue) CROSS JOIN LATERAL (
          SELECT j.run_after, j.id FROM pgjobs_job j
          WHERE j.status = 'pending' AND j.queue = m.queue AND j.priority = v_level AND j.run_after <= v_now
            AND (j.run_after, j.id) > (v_low_at, v_low_id)
            AND (p_kinds IS NULL OR j.kind = ANY (p_kinds)) AND j.kind <> ALL (v_no_kinds) AND (j.expires_at IS NULL OR j.expires_at > v_now)
            AND (p_suspects IS NULL OR NOT j.suspect)
          ORDER BY j.run_after, j.id LIMIT p_limit - cardinality(v_rows)
        ) c ORDER BY c.run_after, c.id OFFSET p_limit - cardinality(v_rows) - 1 LIMIT 1;
        IF NOT FOUND THEN v_cut_at := 'infinity'; v_cut_id := 9223372036854775807; END IF;
      END IF;
      FOREACH v_queue IN ARRAY v_members LOOP
        EXIT WHEN cardinality(v_rows) >= p_limit;
        v_rows := v_rows || ARRAY(
          SELECT j.ctid FROM pgjobs_job j
          WHERE j.status = 'pending' AND j.queue = v_queue AND j.priority = v_level AND j.run_after <= v_now
            AND (j.run_after, j.id) > (v_low_at, v_low_id) AND (j.run_after, j.id) <= (v_cut_at, v_cut_id)
            AND (p_kinds IS NULL OR j.kind = ANY (p_kinds)) AND j.kind <> ALL (v_no_kinds) AND (j.expires_at IS NULL OR j.expires_at > v_now)
            AND (p_suspects IS NULL OR NOT j.suspect)
          ORDER BY j.run_after, j.id LIMIT p_limit - cardinality(v_rows)
          FOR NO KEY UPDATE SKIP LOCKED);
      END LOOP;
      EXIT WHEN v_cut_at = 'infinity' OR cardinality(v_rows) >= p_limit;
      v_low_at := v_cut_at; v_low_id := v_cut_id;  -- others held some of them: go on behind the cut
    END LOOP;
    IF cardinality(v_rows) < p_limit THEN  -- the next lower priority of each queue that was at this level
      SELECT coalesce(array_agg(n.q), '{}'), coalesce(array_agg(n.h), '{}') INTO v_queues, v_heads FROM (
        SELECT u.q, CASE WHEN u.h < v_level THEN u.h ELSE (
          SELECT j.priority FROM pgjobs_job j WHERE j.status = 'pending' AND j.queue = u.q AND j.priority < v_level ORDER BY j.priority DESC LIMIT 1
        ) END AS h FROM unnest(v_queues, v_heads) u (q, h)
      ) n WHERE n.h IS NOT NULL;
    END IF;
  END LOOP;

  v_now := clock_timestamp();  -- the lease counts from here, however long the search took
  -- The rows are locked, so their ctids hold; a TID scan cannot be planned into anything else.
  RETURN QUERY WITH taken AS (
    UPDATE pgjobs_job j SET
      status = 'reserved', attempts = j.attempts + 1, lease = v_token, reserved_by = p_worker, reserved_at = v_now,
      reserved_until = v_now + coalesce(p_lease, j.timeout, interval '1 hour'), worker = p_worker,
      worker_ids = j.worker_ids[greatest(cardinality(j.worker_ids) - 30, 1):] || p_worker,
      last_attempted_at = v_now, started_at = coalesce(j.started_at, v_now), updated_at = v_now
    WHERE j.ctid = ANY (v_rows)
    RETURNING j.*
  ) SELECT * FROM taken t ORDER BY t.priority DESC, t.run_after, t.id;
END $$;
