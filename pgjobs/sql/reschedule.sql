-- reschedule: pending → pending at another time, priority or queue; NULL leaves a thing as it is.
-- p_ids; p_run_after, p_priority, p_queue.
-- Index: the primary key.
-- Returns a row for each id: rescheduled, not_pending, missing, or busy (locked by others: try again).
CREATE OR REPLACE FUNCTION pgjobs_reschedule(p_ids bigint[], p_run_after timestamptz DEFAULT NULL, p_priority integer DEFAULT NULL, p_queue text DEFAULT NULL)
RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_held bigint[];
  v_pending tid[];
  v_others bigint[];
BEGIN
  -- What each is, is read with its lock: a status named in the UPDATE would invite a walk over the partial indexes.
  SELECT coalesce(array_agg(h.id), '{}'), array_agg(h.ctid) FILTER (WHERE h.status = 'pending'), array_agg(h.id) FILTER (WHERE h.status <> 'pending')
  INTO v_held, v_pending, v_others
  FROM (SELECT j.id, j.ctid, j.status FROM pgjobs_job j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR NO KEY UPDATE SKIP LOCKED) h;
  RETURN QUERY WITH moved AS (
    UPDATE pgjobs_job j SET run_after = coalesce(p_run_after, j.run_after), priority = coalesce(p_priority, j.priority), queue = coalesce(p_queue, j.queue),
      updated_at = clock_timestamp()
    WHERE j.ctid = ANY (v_pending) RETURNING j.id, j.queue
  ), told AS (
    SELECT pg_notify('pgjobs', q.queue) FROM (SELECT DISTINCT m.queue FROM moved m) q
  ) SELECT m.id, 'rescheduled' FROM moved m CROSS JOIN (SELECT count(*) FROM told) t;  -- a LEFT JOIN whose columns nobody uses is planned away: nobody would be told
  RETURN QUERY SELECT o, 'not_pending' FROM unnest(v_others) o;
  RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id) THEN 'busy' ELSE 'missing' END
    FROM (SELECT DISTINCT unnest(p_ids)) u (id) WHERE u.id <> ALL (v_held);
END $$;
