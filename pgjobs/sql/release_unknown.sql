-- release_unknown: reserved → pending now, for all that a worker holds by its name and does not know of: a claim whose answer
-- was lost with its connection, or what a dead one had not started. The attempt is given back.
-- p_worker; p_known: the ids that are to stay.
-- Index: pgjobs_reserved.
-- Returns what release does, for each such job.
CREATE OR REPLACE FUNCTION pgjobs_release_unknown(p_worker text, p_known bigint[]) RETURNS TABLE (id bigint, outcome text)
LANGUAGE plpgsql SET search_path FROM CURRENT SET jit = off SET enable_seqscan = off SET enable_bitmapscan = off AS $$
#variable_conflict use_column
DECLARE
  v_ids bigint[];
  v_leases bigint[];
BEGIN
  SELECT array_agg(j.id ORDER BY j.id), array_agg(j.lease ORDER BY j.id) INTO v_ids, v_leases
  FROM pgjobs_job j WHERE j.status = 'reserved' AND j.reserved_by = p_worker AND j.id <> ALL (p_known);
  IF v_ids IS NOT NULL THEN
    RETURN QUERY SELECT r.id, r.outcome FROM pgjobs_release(v_ids, v_leases, false) r;
  END IF;
END $$;
