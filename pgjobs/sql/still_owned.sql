-- Whether a handler's job is still its worker's.
-- p_id, p_lease: the job and the token that the claim returned.
-- Index: the primary key.
-- Returns true while the lease is this one and has not lapsed.
CREATE OR REPLACE FUNCTION pgjobs_still_owned(p_id bigint, p_lease bigint) RETURNS boolean
LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $$
  SELECT EXISTS (SELECT FROM pgjobs_job j WHERE j.id = p_id AND j.lease = p_lease AND j.reserved_until > clock_timestamp())
$$;
