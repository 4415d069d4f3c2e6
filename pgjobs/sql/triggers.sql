-- What happens by itself, whoever writes: a new job wakes workers, an ended one gives its wish for a rerun a life, updated_at is kept.
-- No parameters.
-- Index: those of rerun.
-- Returns nothing.

-- One notification for each queue and statement, and only for what comes due within the hour. `SET LOCAL pgjobs.notify = off`
-- silences a transaction. Committing a notification takes a lock that is one for the whole server, so nobody is told unless a
-- worker sleeps. (A worker that falls asleep before this transaction commits looks again until such transactions have ended.)
-- It names nothing of a schema, so it needs no search_path of its own: setting one takes a third of its time.
CREATE OR REPLACE FUNCTION pgjobs_job_inserted() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
  c_table CONSTANT integer := (TG_RELID::bigint - 2147483648)::integer;  -- the keys of bell, without a call of it
  v_all boolean;
  v_queue text;
BEGIN
  -- Each lock is taken at session level and given back at once: one that is kept until the commit would silence all others.
  v_all := NOT pg_try_advisory_lock(1885825898, c_table);  -- a worker that serves all queues sleeps
  IF NOT v_all THEN PERFORM pg_advisory_unlock(1885825898, c_table); END IF;
  FOR v_queue IN SELECT DISTINCT n.queue FROM inserted n WHERE n.status = 'pending' AND n.run_after < clock_timestamp() + interval '1 hour' LOOP
    IF NOT v_all AND pg_try_advisory_lock(hashtext(v_queue), c_table) THEN
      PERFORM pg_advisory_unlock(hashtext(v_queue), c_table);
    ELSE
      PERFORM pg_notify('pgjobs', v_queue);
    END IF;
  END LOOP;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_job_inserted AFTER INSERT ON pgjobs_job REFERENCING NEW TABLE AS inserted FOR EACH STATEMENT
WHEN (current_setting('pgjobs.notify', true) IS DISTINCT FROM 'off') EXECUTE FUNCTION pgjobs_job_inserted();

CREATE OR REPLACE FUNCTION pgjobs_job_ended() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pgjobs_rerun(OLD.kind, OLD.dedupe_key);
  RETURN NULL;
END $$;
-- (Each statement reads the text of WHEN anew, so it is short: final is the same as finished_at, by a CHECK.)
CREATE OR REPLACE TRIGGER pgjobs_job_ended AFTER UPDATE OF status ON pgjobs_job FOR EACH ROW
WHEN (OLD.dedupe_key IS NOT NULL AND OLD.finished_at IS NULL AND NEW.finished_at IS NOT NULL)
EXECUTE FUNCTION pgjobs_job_ended();
CREATE OR REPLACE TRIGGER pgjobs_job_deleted AFTER DELETE ON pgjobs_job FOR EACH ROW
WHEN (OLD.dedupe_key IS NOT NULL AND OLD.finished_at IS NULL) EXECUTE FUNCTION pgjobs_job_ended();

-- A wish that was made while the holder ran, and is committed after it ended, would meet nobody: it looks for itself at commit.
-- (Should the holder end in the very moment of the commit, the next beat of any worker finds the wish.)
CREATE OR REPLACE FUNCTION pgjobs_rerun_wished() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pgjobs_rerun(NEW.kind, NEW.dedupe_key);
  RETURN NULL;
END $$;
DROP TRIGGER IF EXISTS pgjobs_rerun_wished ON pgjobs_rerun;
CREATE CONSTRAINT TRIGGER pgjobs_rerun_wished AFTER INSERT OR UPDATE ON pgjobs_rerun DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
EXECUTE FUNCTION pgjobs_rerun_wished();

CREATE OR REPLACE FUNCTION pgjobs_job_touched() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
  NEW.updated_at := clock_timestamp();
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_job_touched BEFORE UPDATE ON pgjobs_job FOR EACH ROW
WHEN (NEW.updated_at IS NOT DISTINCT FROM OLD.updated_at) EXECUTE FUNCTION pgjobs_job_touched();
