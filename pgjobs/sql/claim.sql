-- claim: pending → reserved, for at most p_limit due jobs: highest priority first, then run_after, then id, across queues.
-- p_queues NULL: all; p_kinds NULL: all; p_lease: how long to hold (NULL: each job's own timeout, an hour when it has none);
-- p_suspects: true for only those that must run alone, false for none of them, NULL for all.
-- Index: pgjobs_claim (claim_many, which this calls); the primary key, once for each.
-- Returns the claimed rows in that order, all with one new lease. Rows that others hold are passed over; no lock stays on a
-- row that is not taken.
CREATE OR REPLACE FUNCTION pgjobs_claim(
  p_limit integer, p_worker text, p_queues text[] DEFAULT NULL, p_lease interval DEFAULT NULL,
  p_kinds text[] DEFAULT NULL, p_exclude_queues text[] DEFAULT NULL, p_suspects boolean DEFAULT NULL
) RETURNS SETOF pgjobs_job
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off
SET enable_mergejoin = off AS $$
DECLARE
  v_ids bigint[];
BEGIN
  v_ids := ARRAY(SELECT c.id FROM pgjobs_claim_many(p_limit, p_worker, p_queues, p_lease, p_kinds, p_exclude_queues, p_suspects) c WHERE c.id IS NOT NULL);
  RETURN QUERY SELECT j.* FROM unnest(v_ids) u (id) CROSS JOIN LATERAL (SELECT * FROM pgjobs_job o WHERE o.id = u.id OFFSET 0) j
  ORDER BY j.priority DESC, j.run_after, j.id;
END $$;
