-- When a worker has to look at the schedules again.
-- No parameters.
-- Index: none; schedules are few.
-- Returns seconds until the next tick, or until a schedule that met an error is tried again: 0 when one is due, or has no next time yet;
-- NULL when no schedule is enabled.
CREATE OR REPLACE FUNCTION pgjobs_next_tick() RETURNS double precision
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  RETURN (SELECT extract(epoch FROM min(greatest(s.next_run_at, s.retry_at, v_now)) - v_now)  -- greatest() skips NULLs
          FROM pgjobs_schedule s WHERE s.enabled AND s.retired_at IS NULL);
END $$;
