-- archive: jobs of one final status that ended longer than p_age ago → pgjobs_archivedjob, the oldest first; their history stays.
-- p_status; p_age; p_batch: how many at most.
-- Index: pgjobs_prune.
-- Returns how many.
CREATE OR REPLACE FUNCTION pgjobs_archive(p_status text, p_age interval, p_batch integer DEFAULT 1000) RETURNS integer
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off AS $$
DECLARE
  v_before timestamptz := clock_timestamp() - p_age;
  v_count integer;
BEGIN
  WITH gone AS (
    DELETE FROM pgjobs_job j WHERE j.ctid = ANY (ARRAY(
      SELECT o.ctid FROM pgjobs_job o
      WHERE o.status = p_status AND o.status IN ('done', 'failed', 'dead', 'cancelled') AND o.finished_at IS NOT NULL AND o.finished_at <= v_before
      ORDER BY o.finished_at LIMIT p_batch FOR UPDATE SKIP LOCKED))
    RETURNING j.*
  ) INSERT INTO pgjobs_archivedjob (id, kind, queue, payload, priority, status, run_after, attempts, max_attempts, timeout, dedupe_key, lease,
      reserved_by, reserved_at, reserved_until, worker, worker_ids, last_error, error_class, result, progress, meta, refunds, snoozes, lost, suspect,
      cancel_requested_at, expires_at, schedule_id, scheduled_for, parent_id, created_at, updated_at, started_at, last_attempted_at, finished_at)
    SELECT g.id, g.kind, g.queue, g.payload, g.priority, g.status, g.run_after, g.attempts, g.max_attempts, g.timeout, g.dedupe_key, g.lease,
      g.reserved_by, g.reserved_at, g.reserved_until, g.worker, g.worker_ids, g.last_error, g.error_class, g.result, g.progress, g.meta, g.refunds, g.snoozes, g.lost, g.suspect,
      g.cancel_requested_at, g.expires_at, g.schedule_id, g.scheduled_for, g.parent_id, g.created_at, g.updated_at, g.started_at, g.last_attempted_at, g.finished_at
    FROM gone g;
  GET DIAGNOSTICS v_count = ROW_COUNT;
  RETURN v_count;
END $$;
