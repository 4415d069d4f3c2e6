-- How long a worker that found nothing may sleep: until the first pending job of its queues comes due, or a pause ends.
-- p_queues: NULL for all; p_exclude_queues: NULL for none.
-- Index: pgjobs_claim, one probe for each (queue, priority).
-- Returns seconds (0 at least), or NULL when nothing is waiting for its time.
CREATE OR REPLACE FUNCTION pgjobs_next_due(p_queues text[] DEFAULT NULL, p_exclude_queues text[] DEFAULT NULL)
RETURNS double precision
LANGUAGE plpgsql
SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET plan_cache_mode = force_generic_plan AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
  v_first timestamptz;
  v_found timestamptz;
  v_queue text := '';
  v_priority smallint;
BEGIN
  SELECT min(p.until) INTO v_first FROM pgjobs_pause p WHERE p.until > v_now;
  LOOP
    SELECT j.queue INTO v_queue FROM pgjobs_job j WHERE j.status = 'pending' AND j.queue > v_queue ORDER BY j.queue LIMIT 1;
    EXIT WHEN NOT FOUND;
    CONTINUE WHEN NOT (p_queues IS NULL OR v_queue = ANY (p_queues)) OR v_queue = ANY (coalesce(p_exclude_queues, '{}'));
    v_priority := 101;
    LOOP
      SELECT j.priority INTO v_priority FROM pgjobs_job j
      WHERE j.status = 'pending' AND j.queue = v_queue AND j.priority < v_priority ORDER BY j.priority DESC LIMIT 1;
      EXIT WHEN NOT FOUND;
      SELECT j.run_after INTO v_found FROM pgjobs_job j
      WHERE j.status = 'pending' AND j.queue = v_queue AND j.priority = v_priority AND j.run_after > v_now ORDER BY j.run_after LIMIT 1;
      v_first := least(v_first, v_found);
    END LOOP;
  END LOOP;
  RETURN CASE WHEN v_first IS NOT NULL THEN greatest(extract(epoch FROM v_first - clock_timestamp()), 0) END;  -- greatest() skips NULLs
END $$;
