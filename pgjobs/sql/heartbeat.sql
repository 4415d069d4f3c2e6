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
