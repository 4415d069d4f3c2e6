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
