-- enqueue: → pending; or, when a live job of the kind holds the dedupe key: keep it, replace it, or wish for a rerun.
-- NULL means the default of the table, but for p_timeout: NULL is no limit. p_on_conflict: keep, replace or rerun. p_schedule_id,
-- p_scheduled_for: of a tick.
-- Index: pgjobs_dedupe, when there is a key.
-- Returns the job (or the holder), whether it was created, and created, kept, replaced or rerun. Never nothing, and never
-- an error for a duplicate: when the holder ends in between, the insert is tried again.
CREATE OR REPLACE FUNCTION pgjobs_enqueue(
  p_kind text, p_payload jsonb DEFAULT '{}', p_run_after timestamptz DEFAULT NULL, p_priority integer DEFAULT NULL,
  p_dedupe_key text DEFAULT NULL, p_max_attempts integer DEFAULT NULL, p_timeout interval DEFAULT interval '5 minutes',
  p_queue text DEFAULT NULL, p_on_conflict text DEFAULT NULL, p_expires_at timestamptz DEFAULT NULL, p_meta jsonb DEFAULT NULL,
  p_parent_id bigint DEFAULT NULL, p_schedule_id bigint DEFAULT NULL, p_scheduled_for timestamptz DEFAULT NULL
) RETURNS TABLE (id bigint, created boolean, action text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz;
  v_holder record;
  v_on_conflict text := coalesce(p_on_conflict, 'keep');
BEGIN
  IF v_on_conflict NOT IN ('keep', 'replace', 'rerun') THEN
    RAISE EXCEPTION 'p_on_conflict is %; it has to be keep, replace or rerun', quote_literal(p_on_conflict) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  p_payload := coalesce(p_payload, '{}');
  p_priority := coalesce(p_priority, 0);
  p_max_attempts := coalesce(p_max_attempts, 10);
  p_queue := coalesce(p_queue, 'default');
  FOR v_try IN 1..100 LOOP
    v_now := clock_timestamp();
    INSERT INTO pgjobs_job AS j (kind, payload, run_after, priority, dedupe_key, max_attempts, timeout, queue, expires_at, meta, parent_id,
                                 schedule_id, scheduled_for)
    VALUES (p_kind, p_payload, coalesce(p_run_after, v_now), p_priority, p_dedupe_key, p_max_attempts, p_timeout, p_queue, p_expires_at, p_meta, p_parent_id,
            p_schedule_id, p_scheduled_for)
    ON CONFLICT (kind, dedupe_key) WHERE dedupe_key IS NOT NULL AND status IN ('pending', 'reserved') DO NOTHING
    RETURNING j.id, true, 'created' INTO id, created, action;
    IF FOUND THEN RETURN NEXT; RETURN; END IF;

    SELECT j.id, j.status, j.expires_at INTO v_holder FROM pgjobs_job j
    WHERE j.kind = p_kind AND j.dedupe_key = p_dedupe_key AND j.status IN ('pending', 'reserved');
    CONTINUE WHEN NOT FOUND;  -- it ended just now: the key is free

    IF v_holder.status = 'pending' AND v_holder.expires_at <= v_now THEN  -- an expired holder has ended, but nobody has written it yet
      UPDATE pgjobs_job j SET status = 'cancelled', finished_at = v_now, last_error = 'expired', updated_at = v_now
      WHERE j.id = v_holder.id AND j.lease IS NULL AND j.finished_at IS NULL AND j.expires_at <= v_now;
      CONTINUE;
    END IF;

    IF v_on_conflict = 'keep' OR (v_on_conflict = 'rerun' AND v_holder.status = 'pending') THEN
      RETURN QUERY SELECT v_holder.id, false, 'kept';
      RETURN;
    ELSIF v_holder.status = 'pending' THEN
      UPDATE pgjobs_job j SET payload = p_payload, priority = p_priority, run_after = coalesce(p_run_after, v_now), updated_at = v_now
      WHERE j.id = v_holder.id AND j.lease IS NULL AND j.finished_at IS NULL;  -- still pending; named, the status would invite a walk over pgjobs_claim
      CONTINUE WHEN NOT FOUND;  -- claimed just now: look again
      IF current_setting('pgjobs.notify', true) IS DISTINCT FROM 'off' THEN
        PERFORM pg_notify('pgjobs', j.queue) FROM pgjobs_job j WHERE j.id = v_holder.id;
      END IF;
      RETURN QUERY SELECT v_holder.id, false, 'replaced';
      RETURN;
    ELSE
      -- The running row is not touched: whatever ends it finds the wish (triggers.sql); should it end before this
      -- transaction commits, the wish's own trigger, at commit, does the same.
      INSERT INTO pgjobs_rerun AS r (kind, dedupe_key, queue, payload, priority, run_after, max_attempts, timeout, expires_at, meta, parent_id,
                                   schedule_id, scheduled_for)
      VALUES (p_kind, p_dedupe_key, p_queue, p_payload, p_priority, coalesce(p_run_after, v_now), p_max_attempts, p_timeout, p_expires_at, p_meta, p_parent_id,
              p_schedule_id, p_scheduled_for)
      ON CONFLICT (kind, dedupe_key) DO UPDATE SET
        queue = excluded.queue, payload = excluded.payload, priority = excluded.priority, run_after = excluded.run_after, max_attempts = excluded.max_attempts,
        timeout = excluded.timeout, expires_at = excluded.expires_at, meta = excluded.meta, parent_id = excluded.parent_id,
        schedule_id = excluded.schedule_id, scheduled_for = excluded.scheduled_for, created_at = v_now;
      RETURN QUERY SELECT v_holder.id, false, 'rerun';
      RETURN;
    END IF;
  END LOOP;
  RAISE EXCEPTION 'the holder of dedupe key % of % changed 100 times in a row; try again', quote_literal(p_dedupe_key), quote_literal(p_kind)
    USING ERRCODE = 'serialization_failure';
END $$;
