-- enqueue, for many: rows without a dedupe key go in as one insert, rows with one pass through enqueue in the order of their keys.
-- p_jobs: a JSON array of objects {k: kind, p: payload, or an array of payloads of jobs that are alike} with, each optional:
-- q queue, r priority, a run_after (a time) or d (seconds from now), n max_attempts, t timeout in seconds (null: no limit),
-- u dedupe_key, c on_conflict, e expires_at, m meta.
-- Index: pgjobs_dedupe, for those with a key.
-- Returns a row for each object with a key, by its place in p_jobs (from 1): the job's id, whether it was created, and the
-- action; and one row, whose place is NULL, with the ids of all other jobs in their order.
CREATE OR REPLACE FUNCTION pgjobs_enqueue_many(p_jobs jsonb, p_parent_id bigint DEFAULT NULL)
RETURNS TABLE (place bigint, ids bigint[], created boolean, action text)
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
#variable_conflict use_column
DECLARE
  v_now timestamptz := clock_timestamp();
  v_ids bigint[];
  v_job record;
BEGIN
  -- What jobs have in common is read once. The identity numbers the rows in the order of the insert, so the n-th smallest id is
  -- the n-th row.
  WITH alike AS MATERIALIZED (
    SELECT e.n, e.v ->> 'k' AS kind, coalesce(e.v ->> 'q', 'default') AS queue, coalesce((e.v ->> 'r')::smallint, 0::smallint) AS priority,
           coalesce((e.v ->> 'a')::timestamptz, v_now + make_interval(secs => coalesce((e.v ->> 'd')::float8, 0))) AS run_after,
           coalesce((e.v ->> 'n')::integer, 10) AS max_attempts,
           CASE WHEN e.v ? 't' THEN make_interval(secs => (e.v ->> 't')::float8) ELSE interval '5 minutes' END AS timeout,
           (e.v ->> 'e')::timestamptz AS expires_at, e.v -> 'm' AS meta,
           CASE WHEN jsonb_typeof(e.v -> 'p') = 'array' THEN e.v -> 'p' ELSE jsonb_build_array(e.v -> 'p') END AS payloads
    FROM jsonb_array_elements(p_jobs) WITH ORDINALITY e (v, n) WHERE e.v -> 'u' IS NULL
  ), added AS (
    INSERT INTO pgjobs_job AS j (kind, payload, queue, priority, run_after, max_attempts, timeout, expires_at, meta, parent_id)
    SELECT a.kind, p.v, a.queue, a.priority, a.run_after, a.max_attempts, a.timeout, a.expires_at, a.meta, p_parent_id
    FROM alike a CROSS JOIN LATERAL jsonb_array_elements(a.payloads) WITH ORDINALITY p (v, m) ORDER BY a.n, p.m
    RETURNING j.id
  ) SELECT array_agg(a.id ORDER BY a.id) INTO v_ids FROM added a;
  IF v_ids IS NOT NULL THEN
    RETURN QUERY SELECT NULL::bigint, v_ids, true, 'created';
  END IF;

  FOR v_job IN
    SELECT e.v, e.n FROM jsonb_array_elements(p_jobs) WITH ORDINALITY e (v, n) WHERE e.v -> 'u' IS NOT NULL
    ORDER BY (e.v ->> 'k') COLLATE "C", (e.v ->> 'u') COLLATE "C", e.n
  LOOP
    RETURN QUERY SELECT v_job.n, ARRAY[q.id], q.created, q.action FROM pgjobs_enqueue(
      p_kind => v_job.v ->> 'k', p_payload => v_job.v -> 'p', p_queue => v_job.v ->> 'q', p_priority => (v_job.v ->> 'r')::integer,
      p_run_after => coalesce((v_job.v ->> 'a')::timestamptz, clock_timestamp() + make_interval(secs => (v_job.v ->> 'd')::float8)),
      p_max_attempts => (v_job.v ->> 'n')::integer,
      p_timeout => CASE WHEN v_job.v ? 't' THEN make_interval(secs => (v_job.v ->> 't')::float8) ELSE interval '5 minutes' END,
      p_dedupe_key => v_job.v ->> 'u', p_on_conflict => v_job.v ->> 'c', p_expires_at => (v_job.v ->> 'e')::timestamptz,
      p_meta => v_job.v -> 'm', p_parent_id => p_parent_id) q;
  END LOOP;
END $$;
