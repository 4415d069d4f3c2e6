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
