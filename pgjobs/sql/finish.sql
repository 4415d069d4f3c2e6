-- finish: reserved → done; or, when the handler failed, retry while attempts are left and bury when none is.
-- p_id, p_lease: the job and the token that the claim returned; p_result: the success's value; p_error: the failure's text
-- (of a success: a note for the reader, kept as last_error).
-- Index: the primary key.
-- Returns the new status (done, pending, dead; cancelled when a failure meets a request to cancel), or NULL when the lease was
-- lost: then nothing was changed. Unlike the batch forms it waits for a row that an open transaction holds.
CREATE OR REPLACE FUNCTION pgjobs_finish(p_id bigint, p_lease bigint, p_success boolean, p_error text DEFAULT NULL, p_result jsonb DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
  v_job record;
BEGIN
  IF p_success IS NULL THEN
    RAISE EXCEPTION 'p_success has to be true or false' USING ERRCODE = 'null_value_not_allowed';
  END IF;
  SELECT j.attempts, j.max_attempts INTO v_job FROM pgjobs_job j WHERE j.id = p_id AND j.lease = p_lease FOR NO KEY UPDATE;
  IF NOT FOUND THEN RETURN NULL; END IF;
  IF p_success THEN
    PERFORM pgjobs_finish_many(ARRAY[p_id], ARRAY[p_lease], 
      CASE WHEN p_result IS NOT NULL THEN jsonb_build_object(p_id::text, p_result) END, CASE WHEN p_error IS NOT NULL THEN jsonb_build_object(p_id::text, p_error) END);
    RETURN 'done';
  ELSIF v_job.attempts < v_job.max_attempts THEN
    RETURN pgjobs_retry(p_id, p_lease, p_error);
  END IF;
  RETURN pgjobs_bury(p_id, p_lease, p_error);
END $$;
