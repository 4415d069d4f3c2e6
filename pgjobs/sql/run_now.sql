-- run_now: → pending: a job of a schedule outside its ticks. The schedule itself is left alone.
-- p_id, p_scheduled_for: the schedule, and its job's nominal time; p_key, p_since: at most one job of this key since then, whether it has ended or not (NULL: always a new one); the rest:
-- as for enqueue.
-- Index: pgjobs_dedupe for a live job of the key, pgjobs_finished for one that has ended.
-- Returns the job, or that of an earlier call with the key, and whether it was created.
CREATE OR REPLACE FUNCTION pgjobs_run_now(
  p_id bigint, p_scheduled_for timestamptz, p_key text, p_since timestamptz, p_kind text, p_payload jsonb, p_priority integer, p_max_attempts integer, p_timeout interval,
  p_queue text, p_meta jsonb
) RETURNS TABLE (id bigint, created boolean)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
DECLARE
  v_key text := CASE WHEN p_key IS NOT NULL THEN concat_ws(' ', 'pgjobs run', p_id, (extract(epoch FROM p_since) * 1000000)::bigint, p_key) END;
  v_job record;
  v_ended bigint;
BEGIN
  SELECT e.id, e.created INTO v_job FROM pgjobs_enqueue(
    p_kind, p_payload, NULL, p_priority, v_key, p_max_attempts, p_timeout, p_queue, 'keep', NULL, p_meta, NULL, p_id, p_scheduled_for) e;
  IF v_key IS NOT NULL AND v_job.created THEN
    -- No live job had the key. One that has ended is looked for only now: it can have ended since any earlier look.
    -- An aggregate that no index answers: min(id) would invite a walk over the primary key.
    SELECT (array_agg(j.id))[1] INTO v_ended FROM pgjobs_job j
    WHERE j.kind = p_kind AND j.status IN ('done', 'failed', 'dead', 'cancelled') AND j.finished_at >= p_since AND j.dedupe_key = v_key;
    IF v_ended IS NOT NULL THEN
      DELETE FROM pgjobs_job j WHERE j.id = v_job.id;  -- nobody has seen it
      v_job.id := v_ended;
      v_job.created := false;
    END IF;
  END IF;
  RETURN QUERY SELECT v_job.id, v_job.created;
END $$;
