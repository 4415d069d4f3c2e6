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
