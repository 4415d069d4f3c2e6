-- The advisory lock by which inserters see whether a worker sleeps: held (shared) in the session of each that does.
-- No parameters.
-- Returns its two keys: one for pgjobs, and the table's oid, so that two schemas do not wake each other's workers.
CREATE OR REPLACE FUNCTION pgjobs_bell(OUT class integer, OUT id integer)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT 1885825898, ('pgjobs_job'::regclass::oid::bigint - 2147483648)::integer;
$$;
