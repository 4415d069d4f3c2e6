-- beat: all that a keeper does each few seconds, in one statement: its worker's row, heartbeat, reap, expiry, wishes left over.
-- p_worker … p_stopping: the row for people; p_ids, p_leases: the jobs held, pair by pair; p_lease: how long to hold from now.
-- Index: those of heartbeat, reap and expire.
-- Returns events: a verdict of heartbeat but held (id), reaped (all of reap), expired (attempts: how many), suspects (there are
-- jobs of these queues and kinds that must run alone), and next (seconds until the first lease of another worker lapses).
CREATE OR REPLACE FUNCTION pgjobs_beat(
  p_worker text, p_host text, p_pid integer, p_queues text[], p_exclude_queues text[], p_kinds text[], p_threads integer, p_running integer,
  p_stopping boolean, p_ids bigint[], p_leases bigint[], p_lease interval, p_batch integer DEFAULT 1000
) RETURNS TABLE (event text, id bigint, kind text, queue text, status text, attempts integer, worker text, seconds double precision)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off AS $$
#variable_conflict use_column
BEGIN
  RETURN QUERY SELECT 'tick', NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text, n.seconds
    FROM pgjobs_next_tick() n (seconds) WHERE n.seconds IS NOT NULL;
  RETURN QUERY SELECT h.verdict, h.id, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text, NULL::double precision
    FROM pgjobs_heartbeat(p_ids, p_leases, p_lease) h WHERE h.verdict <> 'held';
  RETURN QUERY SELECT 'reaped', r.id, r.kind, r.queue, r.status, r.attempts, r.worker, NULL::double precision FROM pgjobs_reap(p_batch) r;
  RETURN QUERY SELECT 'expired', NULL::bigint, NULL::text, NULL::text, NULL::text, e.n, NULL::text, NULL::double precision
    FROM pgjobs_expire(p_batch) e (n) WHERE e.n > 0;
  PERFORM pgjobs_rerun(r.kind, r.dedupe_key) FROM (SELECT * FROM pgjobs_rerun ORDER BY kind, dedupe_key LIMIT p_batch) r;
  -- Rows for people: whoever holds them must not hold up the leases. (An upsert would wait, and so would a plain DELETE.)
  UPDATE pgjobs_worker w SET running = p_running, stopping = p_stopping, beat_at = clock_timestamp()
    WHERE w.ctid = ANY (ARRAY(SELECT o.ctid FROM pgjobs_worker o WHERE o.name = p_worker FOR NO KEY UPDATE SKIP LOCKED));
  IF NOT FOUND AND NOT EXISTS (SELECT FROM pgjobs_worker w WHERE w.name = p_worker) THEN
    INSERT INTO pgjobs_worker (name, host, pid, queues, exclude_queues, kinds, threads, running, stopping)
    VALUES (p_worker, p_host, p_pid, p_queues, p_exclude_queues, p_kinds, p_threads, p_running, p_stopping) ON CONFLICT DO NOTHING;
  END IF;
  DELETE FROM pgjobs_worker w WHERE w.ctid = ANY (ARRAY(
    SELECT o.ctid FROM pgjobs_worker o WHERE o.beat_at < clock_timestamp() - interval '1 day' FOR UPDATE SKIP LOCKED));
  RETURN QUERY SELECT 'suspects', NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text, NULL::double precision
    WHERE EXISTS (SELECT FROM pgjobs_job j WHERE j.status = 'pending' AND j.suspect AND j.run_after <= clock_timestamp() AND j.kind = ANY (p_kinds)
      AND (cardinality(p_queues) = 0 OR j.queue = ANY (p_queues)) AND j.queue <> ALL (p_exclude_queues)
      AND (j.expires_at IS NULL OR j.expires_at > clock_timestamp()) AND NOT EXISTS (
        SELECT FROM pgjobs_pause p WHERE (p.until IS NULL OR p.until > clock_timestamp())
          AND (p.scope = 'queue' AND p.name = j.queue OR p.scope = 'kind' AND p.name = j.kind)));  -- else a process would start for nothing
  RETURN QUERY SELECT 'next', NULL::bigint, NULL::text, NULL::text, NULL::text, NULL::integer, NULL::text,
    extract(epoch FROM min(j.reserved_until) - clock_timestamp())::double precision
    FROM pgjobs_job j WHERE j.status = 'reserved' AND j.reserved_by <> p_worker HAVING min(j.reserved_until) IS NOT NULL;
END $$;
