-- tick: fire what is due of one schedule. Its ticks, their jobs and the schedule's next time are one transaction: the caller's statement.
-- p_id, p_revision, p_next_run_at: the schedule as the caller read it; any difference, and this call changes nothing. p_times: the nominal
-- times to fire, ascending; p_missed: the last one that is left out, or NULL; p_following: the next time; p_note: what people should know.
-- The rest: the job, as for enqueue; p_once: at most one of its jobs lives, whatever the overlap.
-- Index: pgjobs_tick_once, pgjobs_dedupe, pgjobs_rerun_key.
-- Returns a row for each tick; none when another worker was first, when the schedule was edited, or when nothing is due by the database's clock.
CREATE OR REPLACE FUNCTION pgjobs_tick(
  p_id bigint, p_revision bigint, p_next_run_at timestamptz, p_times timestamptz[], p_missed timestamptz, p_following timestamptz, p_note text,
  p_kind text, p_payload jsonb, p_priority integer, p_max_attempts integer, p_timeout interval, p_queue text, p_meta jsonb, p_once boolean DEFAULT false
) RETURNS TABLE (scheduled_for timestamptz, outcome text, job_id bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_schedule pgjobs_schedule;
  v_overlap text;
  v_key text;
  v_time timestamptz;
  v_outcome text;
  v_job record;
  v_skipped integer := 0;
  v_last timestamptz;
BEGIN
  SELECT * INTO v_schedule FROM pgjobs_schedule s
  WHERE s.id = p_id AND s.revision = p_revision AND s.next_run_at = p_next_run_at AND s.next_run_at <= v_now AND s.enabled AND s.retired_at IS NULL
  FOR NO KEY UPDATE SKIP LOCKED;
  IF NOT FOUND THEN RETURN; END IF;
  v_last := v_schedule.last_tick_at;
  v_overlap := CASE WHEN p_once THEN 'skip' ELSE v_schedule.overlap END;
  -- One live job of a schedule is what one live job of a key is, and a wish for a rerun is the one that waits behind it.
  v_key := CASE WHEN v_overlap <> 'allow' THEN 'pgjobs schedule ' || p_id END;
  IF p_missed > v_last OR (p_missed IS NOT NULL AND v_last IS NULL) THEN
    INSERT INTO pgjobs_tick (schedule_id, scheduled_for, outcome) VALUES (p_id, p_missed, 'missed') ON CONFLICT DO NOTHING;
    v_last := p_missed;
    RETURN QUERY SELECT p_missed, 'missed', NULL::bigint;
  END IF;
  FOREACH v_time IN ARRAY p_times LOOP
    IF v_time > v_now THEN
      RAISE EXCEPTION 'tick: % is in the future by the database''s clock', v_time USING ERRCODE = 'invalid_parameter_value';
    END IF;
    CONTINUE WHEN v_time <= v_last  -- the clock went back: it was fired
      OR EXISTS (SELECT FROM pgjobs_tick t WHERE t.schedule_id = p_id AND t.scheduled_for = v_time);
    v_last := v_time;
    v_outcome := 'skipped';
    SELECT NULL::bigint AS id INTO v_job;
    IF v_overlap <> 'queue_one' OR NOT EXISTS (SELECT FROM pgjobs_rerun r WHERE r.kind = p_kind AND r.dedupe_key = v_key) THEN
      SELECT e.id, e.created, e.action INTO v_job FROM pgjobs_enqueue(
        p_kind, p_payload, NULL, p_priority, v_key, p_max_attempts, p_timeout, p_queue, CASE v_overlap WHEN 'queue_one' THEN 'rerun' ELSE 'keep' END,
        NULL, p_meta, NULL, p_id, v_time) e;
      v_outcome := CASE v_job.action WHEN 'created' THEN 'enqueued' WHEN 'rerun' THEN 'queued' ELSE 'skipped' END;
    END IF;
    v_skipped := v_skipped + (v_outcome = 'skipped')::integer;
    INSERT INTO pgjobs_tick AS t (schedule_id, scheduled_for, outcome, job_id)
    VALUES (p_id, v_time, v_outcome, CASE v_outcome WHEN 'enqueued' THEN v_job.id END);
    RETURN QUERY SELECT v_time, v_outcome, CASE v_outcome WHEN 'enqueued' THEN v_job.id END;
  END LOOP;
  IF p_following <= greatest(v_last, p_next_run_at) THEN
    RAISE EXCEPTION 'tick: the next time, %, does not come after %', p_following, greatest(v_last, p_next_run_at) USING ERRCODE = 'invalid_parameter_value';
  END IF;
  UPDATE pgjobs_schedule s SET next_run_at = p_following, last_tick_at = v_last, skipped = s.skipped + v_skipped, errors = 0, last_error = p_note,
    retry_at = NULL, updated_at = v_now
  WHERE s.id = p_id;
END $$;
