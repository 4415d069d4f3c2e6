-- sync_schedules: the schedules that a project's code declares → rows. What left the code is retired; what returned starts from now. Whether a
-- schedule is enabled is not the code's to say.
-- p_project; p_fingerprint: of the whole declaration; p_declared: an array of name, kind, queue, payload, payload_from, cron, every (seconds),
-- timezone (null: as it is, for a new row p_zone), misfire, overlap, max_lateness (seconds); p_patience: how long the declaration in force may go
-- unseen before another one that was in force earlier takes its place (a code that is new here does at once); p_force: it does at once, too.
-- Index: pgjobs_declaration_once and the unique name.
-- Returns a name and what was done: created, updated, restored, retired, busy (somebody holds the row: call again), taken (an admin's, or another
-- project's, has the name); a row of ('', outdated) alone when newer code is in force: nothing was changed.
CREATE OR REPLACE FUNCTION pgjobs_sync_schedules(
  p_project text, p_fingerprint text, p_declared jsonb, p_zone text, p_patience interval DEFAULT interval '5 minutes', p_force boolean DEFAULT false
) RETURNS TABLE (name text, action text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_current pgjobs_declaration;
  v_new record;
  v_old pgjobs_schedule;
BEGIN
  -- Siblings that start together go one after the other.
  PERFORM pg_advisory_xact_lock(hashtext('pgjobs_sync_schedules'), hashtext(p_project));
  v_now := clock_timestamp();
  SELECT * INTO v_current FROM pgjobs_declaration d WHERE d.project = p_project ORDER BY d.current_since DESC, d.id DESC LIMIT 1;
  IF v_current.fingerprint = p_fingerprint THEN
    UPDATE pgjobs_declaration d SET seen_at = v_now WHERE d.id = v_current.id;
  ELSIF v_current.id IS NULL AND p_declared = '[]' THEN
    RETURN;  -- no schedules in the code, and never any
  ELSIF NOT p_force AND v_current.seen_at > v_now - p_patience
        AND EXISTS (SELECT FROM pgjobs_declaration d WHERE d.project = p_project AND d.fingerprint = p_fingerprint) THEN
    RETURN QUERY SELECT '', 'outdated';
    RETURN;
  ELSE
    INSERT INTO pgjobs_declaration AS d (project, fingerprint, current_since, seen_at)
    VALUES (p_project, p_fingerprint, greatest(v_now, v_current.current_since + interval '1 microsecond'), v_now)
    ON CONFLICT (project, fingerprint) DO UPDATE SET current_since = excluded.current_since, seen_at = excluded.seen_at;
    DELETE FROM pgjobs_declaration d WHERE d.project = p_project AND d.seen_at < v_now - interval '1 year';
  END IF;

  FOR v_new IN
    SELECT d.* FROM jsonb_to_recordset(p_declared) AS d (
      name text, kind text, queue text, payload jsonb, payload_from text, cron text, every double precision, timezone text, misfire text,
      overlap text, max_lateness double precision) ORDER BY d.name
  LOOP
    name := v_new.name;
    SELECT * INTO v_old FROM pgjobs_schedule s WHERE s.name = v_new.name FOR NO KEY UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
      IF EXISTS (SELECT FROM pgjobs_schedule s WHERE s.name = v_new.name) THEN
        action := 'busy';
        RETURN NEXT;
        CONTINUE;
      END IF;
      INSERT INTO pgjobs_schedule (name, kind, queue, payload, payload_from, cron, every, timezone, misfire, overlap, max_lateness, source, project)
      VALUES (v_new.name, v_new.kind, v_new.queue, v_new.payload, v_new.payload_from, v_new.cron, make_interval(secs => v_new.every),
              coalesce(v_new.timezone, p_zone), v_new.misfire, v_new.overlap, make_interval(secs => v_new.max_lateness), 'code', p_project)
      ON CONFLICT DO NOTHING;
      action := CASE WHEN FOUND THEN 'created' ELSE 'busy' END;
      RETURN NEXT;
    ELSIF v_old.source <> 'code' OR v_old.project <> p_project THEN
      action := 'taken';
      RETURN NEXT;
    ELSIF v_old.retired_at IS NOT NULL
       OR (v_old.kind, v_old.queue, v_old.payload, v_old.payload_from, v_old.cron, v_old.every, v_old.misfire, v_old.overlap, v_old.max_lateness)
          IS DISTINCT FROM (v_new.kind, v_new.queue, v_new.payload, v_new.payload_from, v_new.cron, make_interval(secs => v_new.every), v_new.misfire,
                            v_new.overlap, make_interval(secs => v_new.max_lateness))
       OR v_old.timezone <> v_new.timezone THEN
      UPDATE pgjobs_schedule s SET kind = v_new.kind, queue = v_new.queue, payload = v_new.payload, payload_from = v_new.payload_from, cron = v_new.cron,
        every = make_interval(secs => v_new.every), timezone = coalesce(v_new.timezone, s.timezone), misfire = v_new.misfire, overlap = v_new.overlap,
        max_lateness = make_interval(secs => v_new.max_lateness), retired_at = NULL
      WHERE s.id = v_old.id;
      action := CASE WHEN v_old.retired_at IS NULL THEN 'updated' ELSE 'restored' END;
      RETURN NEXT;
    END IF;
  END LOOP;

  RETURN QUERY UPDATE pgjobs_schedule s SET retired_at = v_now WHERE s.id = ANY (ARRAY(
      SELECT o.id FROM pgjobs_schedule o
      WHERE o.source = 'code' AND o.project = p_project AND o.retired_at IS NULL
        AND NOT EXISTS (SELECT FROM jsonb_array_elements(p_declared) d WHERE d ->> 'name' = o.name)
      ORDER BY o.id FOR NO KEY UPDATE SKIP LOCKED)) RETURNING s.name, 'retired';
  RETURN QUERY SELECT s.name, 'busy' FROM pgjobs_schedule s
    WHERE s.source = 'code' AND s.project = p_project AND s.retired_at IS NULL
      AND NOT EXISTS (SELECT FROM jsonb_array_elements(p_declared) d WHERE d ->> 'name' = s.name);
END $$;
