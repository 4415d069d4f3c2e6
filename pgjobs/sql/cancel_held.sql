-- cancel, by the holder: reserved → cancelled, because the handler raised Cancel, or was told to stop and did.
-- p_error: the reason.
-- Index: the primary key.
-- Returns cancelled, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_cancel_held(p_id bigint, p_lease bigint, p_error text, p_log text DEFAULT '') RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_status text := pgjobs_hold(p_id, p_lease);
  v_now timestamptz := clock_timestamp();
BEGIN
  IF v_status <> 'held' THEN RETURN v_status; END IF;
  WITH moved AS (
    UPDATE pgjobs_job j SET
      status = 'cancelled', finished_at = v_now, lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, lost = 0, suspect = false,
      last_error = p_error, error_class = NULL, updated_at = v_now
    WHERE j.id = p_id AND j.lease = p_lease RETURNING j.*
  ) INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error, worker, started_at, finished_at, log)
    SELECT m.id, m.attempts, 'cancelled', coalesce(p_error, ''), coalesce(m.worker, ''), m.last_attempted_at, v_now, coalesce(p_log, '') FROM moved m;
  RETURN 'cancelled';
END $$;
