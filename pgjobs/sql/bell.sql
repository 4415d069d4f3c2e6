-- The advisory lock by which inserters see whether a worker sleeps: held (shared) in the session of each that does.
-- p_queue: one that it serves; NULL: it serves all.
-- Index: none.
-- Returns the lock's two keys, of which one is the table's oid, so that two schemas do not wake each other's workers. Two names may
-- share a lock: then somebody is told in vain.
CREATE OR REPLACE FUNCTION pgjobs_bell(p_queue text DEFAULT NULL, OUT class integer, OUT id integer)
LANGUAGE sql STABLE SET search_path FROM CURRENT AS $$
  SELECT coalesce(hashtext(p_queue), 1885825898), ('pgjobs_job'::regclass::oid::bigint - 2147483648)::integer;
$$;
