-- declaration_state: which place a set of declared schedules has among those that a project's code has declared; the one in force is marked as seen.
-- p_project; p_fingerprint: of the set; p_patience: as for sync_schedules.
-- Index: pgjobs_declaration_once.
-- Returns current; outdated: another one is in force; stale: another one was, and has not been seen for p_patience; unknown.
CREATE OR REPLACE FUNCTION pgjobs_declaration_state(p_project text, p_fingerprint text, p_patience interval DEFAULT interval '5 minutes') RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_current pgjobs_declaration;
BEGIN
  SELECT * INTO v_current FROM pgjobs_declaration d WHERE d.project = p_project ORDER BY d.current_since DESC, d.id DESC LIMIT 1;
  IF v_current.fingerprint = p_fingerprint THEN
    -- Ten workers need not write ten times.
    UPDATE pgjobs_declaration d SET seen_at = v_now WHERE d.id = ANY (ARRAY(
      SELECT o.id FROM pgjobs_declaration o WHERE o.id = v_current.id AND o.seen_at < v_now - p_patience / 20 FOR NO KEY UPDATE SKIP LOCKED));
    RETURN 'current';
  END IF;
  RETURN CASE WHEN v_current.id IS NULL THEN 'unknown' WHEN v_current.seen_at > v_now - p_patience THEN 'outdated' ELSE 'stale' END;
END $$;
