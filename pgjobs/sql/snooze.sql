-- snooze: reserved → pending later; the attempt is given back and the snooze counted. A job that somebody asked to cancel
-- ends as cancelled.
-- p_until: when to run again; p_error: the reason, for the reader.
-- Index: the primary key.
-- Returns the new status, or busy (locked by others: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_snooze(p_id bigint, p_lease bigint, p_until timestamptz, p_error text DEFAULT NULL) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_status text := pgjobs_hold(p_id, p_lease);
  v_now timestamptz := clock_timestamp();
BEGIN
  IF v_status <> 'held' THEN RETURN v_status; END IF;
  UPDATE pgjobs_job j SET
    status = CASE WHEN j.cancel_requested_at IS NULL THEN 'pending' ELSE 'cancelled' END,
    finished_at = CASE WHEN j.cancel_requested_at IS NULL THEN NULL ELSE v_now END,
    run_after = CASE WHEN j.cancel_requested_at IS NULL THEN p_until ELSE j.run_after END,
    attempts = greatest(j.attempts - 1, 0), snoozes = least(j.snoozes + 1, 32767), worker_ids = trim_array(j.worker_ids, least(cardinality(j.worker_ids), 1)), lost = 0, suspect = false,
    lease = NULL, reserved_by = NULL, reserved_at = NULL, reserved_until = NULL, last_error = nullif(p_error, ''), error_class = NULL, updated_at = v_now
  WHERE j.id = p_id AND j.lease = p_lease
  RETURNING j.status INTO v_status;
  RETURN v_status;
END $$;
