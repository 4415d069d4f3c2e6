-- plan_tick: give a schedule that has no next time the one that a worker computed; the zone too, when it has none.
-- p_id, p_revision: the schedule as the caller read it; p_next_run_at: the time; p_timezone: the worker's own zone.
-- Index: the primary key.
-- Returns whether it did; not when another worker was first, when the schedule was edited, or while somebody holds its row.
CREATE OR REPLACE FUNCTION pgjobs_plan_tick(p_id bigint, p_revision bigint, p_next_run_at timestamptz, p_timezone text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
BEGIN
  UPDATE pgjobs_schedule s SET next_run_at = p_next_run_at, timezone = CASE s.timezone WHEN '' THEN p_timezone ELSE s.timezone END,
    errors = 0, last_error = '', retry_at = NULL, updated_at = clock_timestamp()
  WHERE s.id = ANY (ARRAY(
    SELECT o.id FROM pgjobs_schedule o WHERE o.id = p_id AND o.revision = p_revision AND o.next_run_at IS NULL FOR NO KEY UPDATE SKIP LOCKED));
  RETURN FOUND;
END $$;
