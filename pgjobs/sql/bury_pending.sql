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
