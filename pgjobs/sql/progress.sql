-- progress: what a running handler says about how far it is; no move.
-- p_progress: {done, total, text}.
-- Index: the primary key.
-- Returns held when it was stored, or busy (locked by others), or lost.
CREATE OR REPLACE FUNCTION pgjobs_progress(p_id bigint, p_lease bigint, p_progress jsonb) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_held text := pgjobs_hold(p_id, p_lease);
BEGIN
  IF v_held = 'held' THEN
    UPDATE pgjobs_job j SET progress = p_progress, updated_at = clock_timestamp() WHERE j.id = p_id AND j.lease = p_lease;
  END IF;
  RETURN v_held;
END $$;
