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
