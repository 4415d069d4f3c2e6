-- prune: final → gone, with the history of their attempts.
-- p_ids.
-- Index: the primary key; pgjobs_attempt_of_job.
-- Returns a row for each id: pruned, not_final, missing, or busy (locked by others: try again).
CREATE OR REPLACE FUNCTION pgjobs_prune(p_ids bigint[]) RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET plan_cache_mode = force_generic_plan AS $$
#variable_conflict use_column
DECLARE
  v_held bigint[];
  v_final bigint[];
BEGIN
  -- What each is, is read with its lock: a status named in the DELETE would invite a walk over the partial indexes.
  SELECT coalesce(array_agg(h.id), '{}'), coalesce(array_agg(h.id) FILTER (WHERE h.status NOT IN ('pending', 'reserved')), '{}')
  INTO v_held, v_final
  FROM (SELECT j.id, j.status FROM pgjobs_job j WHERE j.id = ANY (p_ids) ORDER BY j.id FOR UPDATE SKIP LOCKED) h;
  DELETE FROM pgjobs_job j WHERE j.id = ANY (v_final);
  DELETE FROM pgjobs_attempt a WHERE a.job_id = ANY (v_final);
  RETURN QUERY SELECT f, 'pruned' FROM unnest(v_final) f;
  RETURN QUERY SELECT h, 'not_final' FROM unnest(v_held) h WHERE h <> ALL (v_final);
  RETURN QUERY SELECT u.id, CASE WHEN EXISTS (SELECT FROM pgjobs_job j WHERE j.id = u.id) THEN 'busy' ELSE 'missing' END
    FROM (SELECT DISTINCT unnest(p_ids)) u (id) WHERE u.id <> ALL (v_held);
END $$;
