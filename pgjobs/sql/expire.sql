-- expire: pending jobs past expires_at → cancelled, with the error "expired".
-- p_batch: how many at most.
-- Index: pgjobs_expire.
-- Returns how many.
CREATE OR REPLACE FUNCTION pgjobs_expire(p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_rows tid[];
BEGIN
  v_rows := ARRAY(
    SELECT j.ctid FROM pgjobs_job j WHERE j.status = 'pending' AND j.expires_at <= v_now ORDER BY j.expires_at
    LIMIT p_batch FOR NO KEY UPDATE SKIP LOCKED);
  UPDATE pgjobs_job j SET status = 'cancelled', finished_at = v_now, last_error = 'expired', error_class = NULL, updated_at = v_now
  WHERE j.ctid = ANY (v_rows);
  RETURN cardinality(v_rows);
END $$;
