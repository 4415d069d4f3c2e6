"""What became of each row, written by a trigger in the very transaction of the move: no observer could miss one."""

INSTALL = """
CREATE TABLE chaos_batch (id bigint PRIMARY KEY);
CREATE TABLE chaos_effect (id bigserial PRIMARY KEY, job_id bigint NOT NULL, attempt integer NOT NULL);
CREATE TABLE chaos_move (
  seq bigserial PRIMARY KEY, at double precision, who text, job bigint, kind text, queue text, key text, old text, new text,
  lease_old bigint, lease_new bigint, attempts_old integer, attempts_new integer, max_attempts integer,
  refunds_old integer, refunds_new integer, worker text, until_old double precision, run_after double precision,
  suspect boolean, cancel boolean
);
CREATE FUNCTION chaos_moved() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  was pgjobs_job := OLD;
  now pgjobs_job := coalesce(NEW, OLD);
BEGIN
  INSERT INTO chaos_move (
    at, who, job, kind, queue, key, old, new,
    lease_old, lease_new, attempts_old, attempts_new, max_attempts,
    refunds_old, refunds_new, worker, until_old, run_after,
    suspect, cancel)
  VALUES (
    extract(epoch FROM clock_timestamp()), current_setting('application_name'), now.id, now.kind, now.queue, now.dedupe_key,
    coalesce(was.status, ''), CASE WHEN TG_OP = 'DELETE' THEN '' ELSE now.status END,
    was.lease, now.lease, was.attempts, now.attempts, now.max_attempts,
    was.refunds, now.refunds, coalesce(now.reserved_by, was.reserved_by), extract(epoch FROM was.reserved_until),
    extract(epoch FROM now.run_after), now.suspect, now.cancel_requested_at IS NOT NULL);
  RETURN NULL;
END $$;
-- Their names come before those of pgjobs' own triggers: the end of a holder is noted before the rerun that it starts.
CREATE TRIGGER chaos_moved AFTER INSERT OR DELETE ON pgjobs_job FOR EACH ROW EXECUTE FUNCTION chaos_moved();
CREATE TRIGGER chaos_moved_on AFTER UPDATE ON pgjobs_job FOR EACH ROW
WHEN (OLD.status IS DISTINCT FROM NEW.status OR OLD.lease IS DISTINCT FROM NEW.lease) EXECUTE FUNCTION chaos_moved();
"""
