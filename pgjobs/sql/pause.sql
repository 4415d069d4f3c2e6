-- pause: no new claims of a queue or a kind, on any worker.
-- p_scope: queue or kind; p_name; p_until: NULL until it is resumed; p_by, p_reason: for the reader.
-- Index: pgjobs_pause_name.
-- Returns nothing; a second pause of the same thing replaces the first.
CREATE OR REPLACE FUNCTION pgjobs_pause(p_scope text, p_name text, p_until timestamptz DEFAULT NULL, p_by text DEFAULT '', p_reason text DEFAULT '')
RETURNS void
LANGUAGE sql SET search_path FROM CURRENT AS $$
  INSERT INTO pgjobs_pause AS p (scope, name, until, by, reason) VALUES (p_scope, p_name, p_until, coalesce(p_by, ''), coalesce(p_reason, ''))
  ON CONFLICT (scope, name) DO UPDATE SET until = excluded.until, by = excluded.by, reason = excluded.reason, created_at = clock_timestamp()
$$;
