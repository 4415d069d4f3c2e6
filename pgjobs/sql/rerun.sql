-- rerun: turn the wish for a (kind, dedupe key) into a new pending job, unless a live job holds the key (its end will do it).
-- p_kind, p_dedupe_key: whose wish.
-- Index: pgjobs_rerun_key, pgjobs_dedupe.
-- Returns the new job's id, or NULL. A wish that an open transaction is changing is left to that transaction's commit.
CREATE OR REPLACE FUNCTION pgjobs_rerun(p_kind text, p_dedupe_key text) RETURNS bigint
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_wish pgjobs_rerun;
  v_id bigint;
BEGIN
  SELECT * INTO v_wish FROM pgjobs_rerun r WHERE r.kind = p_kind AND r.dedupe_key = p_dedupe_key FOR UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN NULL; END IF;
  PERFORM 1 FROM pgjobs_job j WHERE j.kind = p_kind AND j.dedupe_key = p_dedupe_key AND j.status IN ('pending', 'reserved');
  IF FOUND THEN RETURN NULL; END IF;
  INSERT INTO pgjobs_job AS j (kind, dedupe_key, queue, payload, priority, run_after, max_attempts, timeout, expires_at, meta, parent_id,
                               schedule_id, scheduled_for)
  VALUES (p_kind, p_dedupe_key, v_wish.queue, v_wish.payload, v_wish.priority, v_wish.run_after, v_wish.max_attempts, v_wish.timeout,
          v_wish.expires_at, v_wish.meta, v_wish.parent_id, v_wish.schedule_id, v_wish.scheduled_for)
  ON CONFLICT (kind, dedupe_key) WHERE dedupe_key IS NOT NULL AND status IN ('pending', 'reserved') DO NOTHING
  RETURNING j.id INTO v_id;
  IF v_id IS NOT NULL THEN
    DELETE FROM pgjobs_rerun r WHERE r.id = v_wish.id;
    IF v_wish.schedule_id IS NOT NULL THEN  -- the tick that waited behind a running job learns its own
      UPDATE pgjobs_tick t SET job_id = v_id, outcome = 'enqueued' WHERE t.schedule_id = v_wish.schedule_id AND t.scheduled_for = v_wish.scheduled_for;
    END IF;
  END IF;
  RETURN v_id;
END $$;
