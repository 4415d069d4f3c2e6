-- retry: reserved → pending later, because the handler failed and attempts are left. A job that somebody asked to cancel ends as cancelled.
-- p_delay: how long to wait from now; NULL: pgjobs_next_run_after. p_outcome: error or timeout.
-- Index: the primary key.
-- Returns the new status, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_retry(
  p_id bigint, p_lease bigint, p_error text, p_error_class text DEFAULT '', p_traceback text DEFAULT '', p_delay interval DEFAULT NULL,
  p_outcome text DEFAULT 'error', p_log text DEFAULT ''
) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_status text := pgjobs_hold(p_id, p_lease);
  v_now timestamptz := clock_timestamp();
BEGIN
  IF v_status <> 'held' THEN RETURN v_status; END IF;
  WITH moved AS (
    UPDATE pgjobs_job j SET
      status = CASE WHEN j.cancel_requested_at IS NULL THEN 'pending' ELSE 'cancelled' END,
      finished_at = CASE WHEN j.cancel_requested_at IS NULL THEN NULL ELSE v_now END,
      run_after = CASE WHEN j.cancel_requested_at IS NULL THEN coalesce(v_now + p_delay, pgjobs_next_run_after(j.attempts)) ELSE j.run_after END,
      lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, lost = 0, suspect = false,
      last_error = p_error, error_class = nullif(p_error_class, ''), updated_at = v_now
    WHERE j.id = p_id AND j.lease = p_lease RETURNING j.*
  ), recorded AS (
    INSERT INTO pgjobs_attempt (job_id, attempt, outcome, error_class, error, traceback, worker, started_at, finished_at, log)
    SELECT m.id, m.attempts, coalesce(p_outcome, 'error'), coalesce(p_error_class, ''), coalesce(p_error, ''), coalesce(p_traceback, ''), coalesce(m.worker, ''), m.last_attempted_at, v_now, coalesce(p_log, '') FROM moved m
  ) SELECT m.status INTO v_status FROM moved m;
  RETURN v_status;
END $$;
