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
