-- What happens by itself, whoever edits a schedule: what changes the rule lets it start from now, and workers hear of it.
-- No parameters.
-- Index: pgjobs_tick_once, when a schedule is deleted.
-- Returns nothing.

-- A change of what is fired raises the revision, which every worker's tick names: one that read the old row changes nothing. A change
-- of when it is fired, enabled and retired included, also empties next_run_at (unless the same UPDATE gives one): a worker computes it
-- from now, so that nothing is caught up.
CREATE OR REPLACE FUNCTION pgjobs_schedule_edited() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  NEW.revision := OLD.revision + 1;
  NEW.errors := 0;
  NEW.last_error := '';
  NEW.retry_at := NULL;
  NEW.updated_at := clock_timestamp();
  IF (NEW.cron, NEW.every, NEW.enabled, NEW.retired_at IS NULL) IS DISTINCT FROM (OLD.cron, OLD.every, OLD.enabled, OLD.retired_at IS NULL)
     OR NEW.timezone <> OLD.timezone THEN
    NEW.next_run_at := CASE WHEN NEW.next_run_at IS DISTINCT FROM OLD.next_run_at THEN NEW.next_run_at END;
  END IF;
  RETURN NEW;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_schedule_edited BEFORE UPDATE ON pgjobs_schedule FOR EACH ROW
WHEN ((OLD.name, OLD.kind, OLD.queue, OLD.payload, OLD.payload_from, OLD.cron, OLD.every, OLD.misfire, OLD.overlap, OLD.max_lateness, OLD.enabled,
       OLD.retired_at IS NULL) IS DISTINCT FROM
      (NEW.name, NEW.kind, NEW.queue, NEW.payload, NEW.payload_from, NEW.cron, NEW.every, NEW.misfire, NEW.overlap, NEW.max_lateness, NEW.enabled,
       NEW.retired_at IS NULL)
      -- An empty zone is filled in by the worker that computes the first time; that is no edit.
      OR (NEW.timezone <> OLD.timezone AND OLD.timezone <> ''))
EXECUTE FUNCTION pgjobs_schedule_edited();

CREATE OR REPLACE FUNCTION pgjobs_schedule_announced() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  PERFORM pg_notify('pgjobs_schedule', '');
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_schedule_inserted AFTER INSERT ON pgjobs_schedule FOR EACH ROW EXECUTE FUNCTION pgjobs_schedule_announced();
-- Ticks move next_run_at forward, which wakes nobody.
CREATE OR REPLACE TRIGGER pgjobs_schedule_updated AFTER UPDATE ON pgjobs_schedule FOR EACH ROW
WHEN (NEW.revision <> OLD.revision OR (NEW.next_run_at IS NULL AND OLD.next_run_at IS NOT NULL) OR NEW.next_run_at < OLD.next_run_at)
EXECUTE FUNCTION pgjobs_schedule_announced();

CREATE OR REPLACE FUNCTION pgjobs_schedule_deleted() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
  DELETE FROM pgjobs_tick t WHERE t.schedule_id = OLD.id;
  RETURN NULL;
END $$;
CREATE OR REPLACE TRIGGER pgjobs_schedule_deleted AFTER DELETE ON pgjobs_schedule FOR EACH ROW EXECUTE FUNCTION pgjobs_schedule_deleted();
