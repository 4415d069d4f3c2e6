-- prune, by retention: jobs of one final status that ended longer than p_age ago → gone, the oldest first.
-- p_status; p_age; p_batch: how many at most, so that a call is short.
-- Index: pgjobs_prune; pgjobs_attempt_of_job.
-- Returns how many.
CREATE OR REPLACE FUNCTION pgjobs_prune_old(p_status text, p_age interval, p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  v_before timestamptz := clock_timestamp() - p_age;
  v_gone bigint[];
BEGIN
  WITH gone AS (
    DELETE FROM pgjobs_job j WHERE j.ctid = ANY (ARRAY(
      SELECT o.ctid FROM pgjobs_job o
      WHERE o.status = p_status AND o.status IN ('done', 'failed', 'dead', 'cancelled') AND o.finished_at IS NOT NULL AND o.finished_at <= v_before
      ORDER BY o.finished_at LIMIT p_batch FOR UPDATE SKIP LOCKED))
    RETURNING j.id
  ) SELECT coalesce(array_agg(g.id), '{}') INTO v_gone FROM gone g;
  DELETE FROM pgjobs_attempt a WHERE a.job_id = ANY (v_gone);
  RETURN cardinality(v_gone);
END $$;
