"""What a worker reads before it starts."""

from __future__ import annotations

from typing import NamedTuple

from django.db import connections
from django.db.migrations.executor import MigrationExecutor

from .calling import Connection, rows, value


class Server(NamedTuple):
    """Where a connection leads."""

    host: str
    port: str
    database: str
    schema: str
    user: str
    version: str


def server(connection: Connection) -> Server:
    """Host, database, schema and version, as the server itself says."""
    [(database, schema, user, version, host, port)] = rows(
        connection,
        "SELECT current_database(), current_schema(), current_user, current_setting('server_version'),"
        " coalesce(host(inet_server_addr()), 'local socket'), current_setting('port')",
    )
    return Server(host, port, database, schema or "", user, version.split()[0])


def schema_problem(connection: Connection) -> str | None:
    """What the database lacks for this version of pgjobs, in words; None when nothing."""
    shared = connections[connection.alias]
    was_open = shared.connection is not None
    executor = MigrationExecutor(connection)
    targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == "pgjobs"]
    plan = executor.migration_plan(targets)
    missing = [
        f"{migration.app_label}.{migration.name}" for migration, _backwards in plan if migration.app_label == "pgjobs"
    ]
    if not was_open:
        shared.close()  # Django reads the applied migrations through it
    if missing:
        return f"migrations are missing: {', '.join(missing)}"
    if value(connection, "SELECT to_regproc('pgjobs_claim') IS NULL"):
        return "the functions of pgjobs are not on this connection's search path"
    return None


def pending_estimate(connection: Connection, *, most: int = 10_000) -> int:
    """Pending jobs, counted up to ``most`` (more are told as ``most``), by the index of the claim."""
    return int(
        value(
            connection,
            "SELECT count(*) FROM (SELECT FROM pgjobs_job WHERE status = 'pending' LIMIT %s) AS found",
            (most,),
        )
    )
