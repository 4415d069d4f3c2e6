-- tick_failed: what a schedule's tick could not do is written on it, and it is left alone for a while; its time stays, so the tick is not lost.
-- p_id, p_revision, p_errors: the schedule as the caller read it, so that ten workers count one error; p_error; p_pause: for how long.
-- Index: the primary key.
-- Returns whether it was written.
CREATE OR REPLACE FUNCTION pgjobs_tick_failed(p_id bigint, p_revision bigint, p_errors integer, p_error text, p_pause interval) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  UPDATE pgjobs_schedule s SET errors = s.errors + 1, last_error = p_error, retry_at = v_now + p_pause, updated_at = v_now
  WHERE s.id = ANY (ARRAY(
    SELECT o.id FROM pgjobs_schedule o WHERE o.id = p_id AND o.revision = p_revision AND o.errors = p_errors FOR NO KEY UPDATE SKIP LOCKED));
  RETURN FOUND;
END $$;
