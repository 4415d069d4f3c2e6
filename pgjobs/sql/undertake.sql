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
