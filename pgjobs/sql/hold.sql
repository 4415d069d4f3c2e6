-- The fence: lock a job for a write by its holder, without ever waiting for somebody's open transaction.
-- p_id, p_lease: the job and the token that the claim returned.
-- Index: the primary key (status is not named on purpose: naming it would invite a walk over pgjobs_reserved).
-- Returns held (locked until the end of the transaction), busy (another transaction holds the row: try again), or lost.
CREATE OR REPLACE FUNCTION pgjobs_hold(p_id bigint, p_lease bigint) RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM 1 FROM pgjobs_job j WHERE j.id = p_id AND j.lease = p_lease FOR NO KEY UPDATE SKIP LOCKED;
  IF FOUND THEN RETURN 'held'; END IF;
  PERFORM 1 FROM pgjobs_job j WHERE j.id = p_id AND j.lease = p_lease;
  IF FOUND THEN RETURN 'busy'; END IF;
  RETURN 'lost';
END $$;
