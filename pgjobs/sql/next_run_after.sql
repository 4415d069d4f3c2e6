-- When to try again: now + least(5 s · 2^attempt, 6 h) + 0…1 s.
-- p_attempt: the number of the attempt that failed. The exponent is clamped first, so that no number overflows.
-- Index: none.
-- Returns a time by the database's clock; another one for each row of a batch.
CREATE OR REPLACE FUNCTION pgjobs_next_run_after(p_attempt integer) RETURNS timestamptz
LANGUAGE sql VOLATILE AS $$
  SELECT clock_timestamp()
       + least(interval '5 seconds' * 2 ^ least(greatest(coalesce(p_attempt, 0), 0), 20), interval '6 hours')
       + random() * interval '1 second'
$$;
