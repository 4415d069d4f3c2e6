-- reap, for workers without heartbeats, to be called now and then by any of them; each returned job waits its backoff.
-- p_batch: how many at most.
-- Index: pgjobs_reserved.
-- Returns how many lapsed reservations were returned or buried.
CREATE OR REPLACE FUNCTION pgjobs_requeue_timed_out(p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_count integer;
BEGIN
  SELECT count(*) INTO v_count FROM pgjobs_reap(p_batch, false);
  PERFORM pgjobs_rerun(r.kind, r.dedupe_key) FROM pgjobs_rerun r ORDER BY r.kind, r.dedupe_key LIMIT p_batch;
  RETURN v_count;
END $$;
