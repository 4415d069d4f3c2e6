-- The schedules that a worker has to look at now: a tick is due, or the next time is not known yet. It takes nothing: tick does.
-- p_limit: how many at most, the longest waiting first.
-- Index: none; schedules are few.
-- Returns what the worker needs to decide, the times as microseconds since 1970 (no session's zone is in them), read_at: now.
CREATE OR REPLACE FUNCTION pgjobs_due_ticks(p_limit integer DEFAULT 1000) RETURNS TABLE (
  id bigint, name text, kind text, queue text, payload text, payload_from text, cron text, every bigint, timezone text, misfire text, overlap text,
  max_lateness bigint, revision bigint, errors integer, next_run_at bigint, last_tick_at bigint, due_since bigint, read_at bigint)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
BEGIN
  RETURN QUERY SELECT s.id, s.name, s.kind, s.queue, s.payload::text, s.payload_from, s.cron, (extract(epoch FROM s.every) * 1000000)::bigint, s.timezone,
    s.misfire, s.overlap, (extract(epoch FROM s.max_lateness) * 1000000)::bigint, s.revision, s.errors,
    (extract(epoch FROM s.next_run_at) * 1000000)::bigint, (extract(epoch FROM s.last_tick_at) * 1000000)::bigint,
    (extract(epoch FROM coalesce(greatest(s.next_run_at, s.retry_at), s.updated_at)) * 1000000)::bigint, (extract(epoch FROM v_now) * 1000000)::bigint
  FROM pgjobs_schedule s
  WHERE s.enabled AND s.retired_at IS NULL AND (s.next_run_at IS NULL OR s.next_run_at <= v_now) AND (s.retry_at IS NULL OR s.retry_at <= v_now)
  ORDER BY greatest(s.next_run_at, s.retry_at), s.id LIMIT p_limit;
END $$;
