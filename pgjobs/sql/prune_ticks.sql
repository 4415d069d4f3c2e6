-- prune_ticks: old ticks whose job is gone → gone. A tick outlives its job; what keeps a time from firing again is the schedule's last_tick_at.
-- p_age: younger ones stay; p_batch: how many at most of each schedule, so that a call is short. Where jobs are kept for long, millions of
-- ticks stay as well: a call looks at ten times p_batch at most, half of them the oldest and, if none of those goes, half anywhere.
-- Index: pgjobs_tick_once, and the jobs' primary key.
-- Returns how many.
CREATE OR REPLACE FUNCTION pgjobs_prune_ticks(p_age interval, p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
SET enable_hashjoin = off SET enable_mergejoin = off AS $$
DECLARE
  v_before timestamptz := clock_timestamp() - p_age;
  v_id bigint;
  v_from timestamptz;
  v_first timestamptz;
  v_last timestamptz;
  v_seen bigint;
  v_count integer := 0;
  v_gone integer;
BEGIN
  FOR v_id IN SELECT s.id FROM pgjobs_schedule s ORDER BY s.id LOOP
    v_from := '-infinity';
    FOR v_try IN 1..2 LOOP
      SELECT min(w.scheduled_for), max(w.scheduled_for), count(*) INTO v_first, v_last, v_seen FROM (
        SELECT o.scheduled_for FROM pgjobs_tick o WHERE o.schedule_id = v_id AND o.scheduled_for >= v_from AND o.scheduled_for < v_before
        ORDER BY o.scheduled_for LIMIT 5 * p_batch) w;
      DELETE FROM pgjobs_tick t WHERE t.ctid = ANY (ARRAY(
        SELECT o.ctid FROM pgjobs_tick o
        WHERE o.schedule_id = v_id AND o.scheduled_for >= v_first AND o.scheduled_for <= v_last AND o.created_at < v_before
          AND NOT EXISTS (SELECT FROM pgjobs_job j WHERE j.id = o.job_id)
        ORDER BY o.scheduled_for LIMIT p_batch FOR UPDATE SKIP LOCKED));
      GET DIAGNOSTICS v_gone = ROW_COUNT;
      v_count := v_count + v_gone;
      EXIT WHEN v_gone > 0 OR v_seen < 5 * p_batch;
      -- Anywhere between the oldest and the youngest that are old enough: there may be long gaps before and after.
      SELECT o.scheduled_for INTO v_last FROM pgjobs_tick o WHERE o.schedule_id = v_id AND o.scheduled_for < v_before ORDER BY o.scheduled_for DESC LIMIT 1;
      v_from := v_first + random() * (v_last - v_first);
    END LOOP;
  END LOOP;
  RETURN v_count;
END $$;
