-- resume: end a pause, and wake the workers.
-- p_scope: queue or kind; p_name.
-- Index: pgjobs_pause_name.
-- Returns whether there was one.
CREATE OR REPLACE FUNCTION pgjobs_resume(p_scope text, p_name text) RETURNS boolean
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM pgjobs_pause p WHERE p.scope = p_scope AND p.name = p_name;
  IF NOT FOUND THEN RETURN false; END IF;
  PERFORM pg_notify('pgjobs', CASE WHEN p_scope = 'queue' THEN p_name ELSE '' END);
  RETURN true;
END $$;
