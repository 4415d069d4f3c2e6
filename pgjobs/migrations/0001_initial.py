"""The whole schema: tables, their storage options, and a frozen copy of the functions (0001_functions.sql)."""

import datetime
from pathlib import Path

import django.db.models.deletion
import django.db.models.functions.datetime
import django.db.models.lookups
from django.db import migrations, models

import pgjobs.models.fields

# Finished jobs out of the way, in partitions by the time of their end; what has no partition of its own goes into the default one.
ARCHIVE = """
CREATE TABLE pgjobs_archivedjob (
    LIKE pgjobs_job INCLUDING DEFAULTS,
    archived_at timestamptz NOT NULL DEFAULT statement_timestamp()
) PARTITION BY RANGE (finished_at);
CREATE TABLE pgjobs_archivedjob_default PARTITION OF pgjobs_archivedjob DEFAULT;
CREATE INDEX pgjobs_archivedjob_id ON pgjobs_archivedjob (id);
CREATE INDEX pgjobs_archivedjob_kind ON pgjobs_archivedjob (kind, finished_at);
"""
DROP_ARCHIVE = "DROP TABLE pgjobs_archivedjob"

# A queue's table turns over many times a day: vacuum early, and leave room on each page for the next version of a row.
# Heartbeats then stay on their page. The default scale factors would wait for a fifth of the history.
STORAGE = """
ALTER TABLE pgjobs_job SET (
    fillfactor = 80,
    autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 1000
);
ALTER TABLE pgjobs_worker SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
ALTER TABLE pgjobs_schedule SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
"""

FUNCTIONS = (Path(__file__).parent / "0001_functions.sql").read_text(encoding="utf-8")
DROP_FUNCTIONS = """
DO $$ DECLARE f regprocedure; BEGIN
    DROP TRIGGER IF EXISTS pgjobs_job_inserted ON pgjobs_job;
    DROP TRIGGER IF EXISTS pgjobs_job_ended ON pgjobs_job;
    DROP TRIGGER IF EXISTS pgjobs_job_deleted ON pgjobs_job;
    DROP TRIGGER IF EXISTS pgjobs_job_touched ON pgjobs_job;
    DROP TRIGGER IF EXISTS pgjobs_rerun_wished ON pgjobs_rerun;
    DROP TRIGGER IF EXISTS pgjobs_schedule_edited ON pgjobs_schedule;
    DROP TRIGGER IF EXISTS pgjobs_schedule_inserted ON pgjobs_schedule;
    DROP TRIGGER IF EXISTS pgjobs_schedule_updated ON pgjobs_schedule;
    DROP TRIGGER IF EXISTS pgjobs_schedule_deleted ON pgjobs_schedule;
    FOR f IN SELECT p.oid::regprocedure FROM pg_proc p WHERE p.pronamespace = quote_ident(current_schema())::regnamespace AND p.proname LIKE 'pgjobs\\_%'
    LOOP EXECUTE 'DROP FUNCTION ' || f; END LOOP;
END $$
"""


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("name", models.TextField(primary_key=True, serialize=False)),
                ("host", models.TextField(verbose_name="host")),
                ("pid", models.IntegerField(verbose_name="pid")),
                ("queues", pgjobs.models.fields.Array("text", blank=True, db_default=models.Value("{}"))),
                ("exclude_queues", pgjobs.models.fields.Array("text", blank=True, db_default=models.Value("{}"))),
                ("kinds", pgjobs.models.fields.Array("text", blank=True, db_default=models.Value("{}"))),
                ("threads", models.IntegerField(verbose_name="threads")),
                ("running", models.IntegerField(db_default=0, verbose_name="running")),
                ("stopping", models.BooleanField(db_default=False, verbose_name="stopping")),
                (
                    "started_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="started at"
                    ),
                ),
                (
                    "beat_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="last beat"
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "run_after",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="run after"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="created at"
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="updated at"
                    ),
                ),
                ("attempts", models.IntegerField(db_default=0, verbose_name="attempts")),
                ("max_attempts", models.IntegerField(db_default=10, verbose_name="max attempts")),
                (
                    "priority",
                    models.SmallIntegerField(
                        db_default=0, help_text="From -100 to 100; the highest runs first.", verbose_name="priority"
                    ),
                ),
                (
                    "refunds",
                    models.SmallIntegerField(db_default=0, help_text="Attempts given back by stopping workers."),
                ),
                (
                    "snoozes",
                    models.SmallIntegerField(db_default=0, help_text="Times that the handler asked to run later."),
                ),
                (
                    "lost",
                    models.SmallIntegerField(db_default=0, help_text="Attempts lost with their worker, in a row."),
                ),
                (
                    "suspect",
                    models.BooleanField(db_default=False, help_text="Its worker died while it ran: it runs alone."),
                ),
                (
                    "status",
                    models.TextField(
                        choices=[
                            ("pending", "Pending"),
                            ("reserved", "Running"),
                            ("done", "Done"),
                            ("failed", "Failed"),
                            ("dead", "Dead"),
                            ("cancelled", "Cancelled"),
                        ],
                        db_default=models.Value("pending"),
                        verbose_name="status",
                    ),
                ),
                ("queue", models.TextField(db_default=models.Value("default"), verbose_name="queue")),
                ("kind", models.TextField(help_text="The name of the handler.", verbose_name="kind")),
                (
                    "lease",
                    models.BigIntegerField(
                        blank=True, help_text="The token of the claim that holds the job.", null=True
                    ),
                ),
                ("reserved_until", models.DateTimeField(blank=True, null=True, verbose_name="reserved until")),
                ("reserved_at", models.DateTimeField(blank=True, null=True, verbose_name="reserved at")),
                ("last_attempted_at", models.DateTimeField(blank=True, null=True, verbose_name="last attempted at")),
                ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="first started at")),
                ("finished_at", models.DateTimeField(blank=True, null=True, verbose_name="finished at")),
                ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires at")),
                (
                    "cancel_requested_at",
                    models.DateTimeField(blank=True, null=True, verbose_name="cancel requested at"),
                ),
                (
                    "timeout",
                    models.DurationField(
                        blank=True,
                        db_default=datetime.timedelta(seconds=300),
                        help_text="Empty: no limit.",
                        null=True,
                        verbose_name="timeout",
                    ),
                ),
                ("schedule_id", models.BigIntegerField(blank=True, null=True)),
                ("scheduled_for", models.DateTimeField(blank=True, null=True, verbose_name="scheduled for")),
                (
                    "parent_id",
                    models.BigIntegerField(blank=True, help_text="The job whose handler enqueued this one.", null=True),
                ),
                ("dedupe_key", models.TextField(blank=True, null=True, verbose_name="dedupe key")),
                ("reserved_by", models.TextField(blank=True, null=True, verbose_name="reserved by")),
                ("worker", models.TextField(blank=True, null=True, verbose_name="last worker")),
                (
                    "worker_ids",
                    pgjobs.models.fields.Array(
                        "text",
                        blank=True,
                        db_default=models.Value("{}"),
                        help_text="Who ran it, one entry an attempt, the latest 32.",
                    ),
                ),
                (
                    "payload",
                    models.JSONField(
                        blank=True, db_default=models.Value({}, output_field=models.JSONField()), verbose_name="payload"
                    ),
                ),
                (
                    "meta",
                    models.JSONField(
                        blank=True, help_text="Context of the enqueueing code.", null=True, verbose_name="meta"
                    ),
                ),
                ("last_error", models.TextField(blank=True, null=True, verbose_name="last error")),
                ("error_class", models.TextField(blank=True, null=True, verbose_name="error class")),
                ("result", models.JSONField(blank=True, null=True, verbose_name="result")),
                ("progress", models.JSONField(blank=True, null=True, verbose_name="progress")),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": [
                    ("retry_job", "Can retry a job"),
                    ("cancel_job", "Can cancel a job"),
                    ("view_payload", "Can see the payload and the result of a job"),
                ],
                "indexes": [
                    models.Index(
                        models.F("queue"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.F("run_after"),
                        models.F("id"),
                        condition=models.Q(("status", "pending")),
                        name="pgjobs_claim",
                    ),
                    models.Index(
                        condition=models.Q(("status", "reserved")), fields=["reserved_by"], name="pgjobs_reserved"
                    ),
                    models.Index(
                        condition=models.Q(("finished_at__isnull", False)),
                        fields=["kind", "status", "finished_at"],
                        name="pgjobs_finished",
                    ),
                    models.Index(
                        condition=models.Q(("finished_at__isnull", False)),
                        fields=["status", "finished_at"],
                        name="pgjobs_prune",
                    ),
                    models.Index(
                        condition=models.Q(("status", "pending"), ("suspect", True)),
                        fields=["id"],
                        name="pgjobs_suspects",
                    ),
                    models.Index(
                        condition=models.Q(("expires_at__isnull", False), ("status", "pending")),
                        fields=["expires_at"],
                        name="pgjobs_expire",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("dedupe_key__isnull", False), ("status__in", ("pending", "reserved"))),
                        fields=("kind", "dedupe_key"),
                        name="pgjobs_dedupe",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("status__in", ["pending", "reserved", "done", "failed", "dead", "cancelled"])
                        ),
                        name="pgjobs_job_status",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("lease__isnull", False),
                                ("reserved_by__isnull", False),
                                ("reserved_until__isnull", False),
                                ("status", "reserved"),
                            ),
                            models.Q(
                                models.Q(("status", "reserved"), _negated=True),
                                ("lease__isnull", True),
                                ("reserved_by__isnull", True),
                                ("reserved_until__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="pgjobs_job_reserved_has_lease",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("finished_at__isnull", False), ("status__in", ("done", "failed", "dead", "cancelled"))
                            ),
                            models.Q(("finished_at__isnull", True), ("status__in", ("pending", "reserved"))),
                            _connector="OR",
                        ),
                        name="pgjobs_job_final_has_finished_at",
                    ),
                    models.CheckConstraint(condition=models.Q(("attempts__gte", 0)), name="pgjobs_job_attempts"),
                    models.CheckConstraint(
                        condition=models.Q(("max_attempts__gte", 1)), name="pgjobs_job_max_attempts"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__gte", -100), ("priority__lte", 100)), name="pgjobs_job_priority"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("timeout__gt", datetime.timedelta(0))), name="pgjobs_job_timeout"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("run_after__gte", datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC)),
                            ("run_after__lte", datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pgjobs_job_run_after",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("expires_at__gte", datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC)),
                            ("expires_at__lte", datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pgjobs_job_expires_at",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.Exact(
                                models.Func(
                                    models.F("payload"), function="jsonb_typeof", output_field=models.TextField()
                                ),
                                models.Value("object"),
                            )
                        ),
                        name="pgjobs_job_payload_is_object",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                models.Func(
                                    models.F("kind"), function="octet_length", output_field=models.IntegerField()
                                ),
                                1,
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                models.Func(
                                    models.F("kind"), function="octet_length", output_field=models.IntegerField()
                                ),
                                255,
                            ),
                        ),
                        name="pgjobs_job_kind_length",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                models.Func(
                                    models.F("queue"), function="octet_length", output_field=models.IntegerField()
                                ),
                                1,
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                models.Func(
                                    models.F("queue"), function="octet_length", output_field=models.IntegerField()
                                ),
                                255,
                            ),
                        ),
                        name="pgjobs_job_queue_length",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                models.Func(
                                    models.F("dedupe_key"), function="octet_length", output_field=models.IntegerField()
                                ),
                                1,
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                models.Func(
                                    models.F("dedupe_key"), function="octet_length", output_field=models.IntegerField()
                                ),
                                2000,
                            ),
                        ),
                        name="pgjobs_job_dedupe_key_length",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Pause",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("scope", models.TextField(choices=[("queue", "queue"), ("kind", "kind")], verbose_name="scope")),
                ("name", models.TextField(verbose_name="name")),
                (
                    "until",
                    models.DateTimeField(
                        blank=True, help_text="Empty: until it is resumed.", null=True, verbose_name="until"
                    ),
                ),
                ("by", models.TextField(blank=True, db_default=models.Value(""), verbose_name="by")),
                ("reason", models.TextField(blank=True, db_default=models.Value(""), verbose_name="reason")),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now(), verbose_name="since"),
                ),
            ],
            options={
                "verbose_name": "pause",
                "verbose_name_plural": "pauses",
                "constraints": [
                    models.UniqueConstraint(fields=("scope", "name"), name="pgjobs_pause_name"),
                    models.CheckConstraint(
                        condition=models.Q(("scope__in", ["queue", "kind"])), name="pgjobs_pause_scope"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Declaration",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("project", models.TextField()),
                ("fingerprint", models.TextField()),
                ("current_since", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("seen_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("project", "fingerprint"), name="pgjobs_declaration_once")
                ],
            },
        ),
        migrations.CreateModel(
            name="Rerun",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("dedupe_key", models.TextField()),
                ("queue", models.TextField()),
                ("payload", models.JSONField()),
                ("priority", models.SmallIntegerField()),
                ("run_after", models.DateTimeField()),
                ("max_attempts", models.IntegerField()),
                ("timeout", models.DurationField(null=True)),
                ("expires_at", models.DateTimeField(null=True)),
                ("meta", models.JSONField(null=True)),
                ("parent_id", models.BigIntegerField(null=True)),
                ("schedule_id", models.BigIntegerField(null=True)),
                ("scheduled_for", models.DateTimeField(null=True)),
                ("created_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("kind", "dedupe_key"), name="pgjobs_rerun_key")],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", models.TextField(unique=True, verbose_name="name")),
                ("kind", models.TextField(verbose_name="kind")),
                ("queue", models.TextField(blank=True, null=True, verbose_name="queue")),
                (
                    "payload",
                    models.JSONField(
                        blank=True, db_default=models.Value({}, output_field=models.JSONField()), verbose_name="payload"
                    ),
                ),
                (
                    "payload_from",
                    models.TextField(
                        blank=True,
                        db_default=models.Value(""),
                        editable=False,
                        help_text="The function that makes the payload of each tick, when the code gave one.",
                        verbose_name="payload made by",
                    ),
                ),
                ("cron", models.TextField(blank=True, db_default=models.Value(""), verbose_name="cron")),
                (
                    "every",
                    models.DurationField(
                        blank=True,
                        help_text="Counted from 1970-01-01 00:00 UTC: each tick is a multiple of it.",
                        null=True,
                        verbose_name="every",
                    ),
                ),
                (
                    "timezone",
                    models.TextField(
                        blank=True,
                        db_default=models.Value(""),
                        help_text="The zone of the cron expression. Empty: a worker's TIME_ZONE, which is then stored here.",
                        verbose_name="time zone",
                    ),
                ),
                (
                    "misfire",
                    models.TextField(
                        choices=[("skip", "skip"), ("once", "once"), ("all", "all")],
                        db_default=models.Value("once"),
                        verbose_name="missed ticks",
                    ),
                ),
                (
                    "overlap",
                    models.TextField(
                        choices=[("allow", "allow"), ("skip", "skip"), ("queue_one", "queue one")],
                        db_default=models.Value("allow"),
                        verbose_name="overlap",
                    ),
                ),
                ("max_lateness", models.DurationField(blank=True, null=True, verbose_name="max lateness")),
                ("enabled", models.BooleanField(db_default=True, verbose_name="enabled")),
                (
                    "source",
                    models.TextField(
                        choices=[("code", "code"), ("admin", "admin")],
                        db_default=models.Value("admin"),
                        verbose_name="source",
                    ),
                ),
                (
                    "project",
                    models.TextField(
                        blank=True,
                        db_default=models.Value(""),
                        editable=False,
                        help_text="Whose code declares it.",
                        verbose_name="project",
                    ),
                ),
                (
                    "retired_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="When it left the code; it fires no more.",
                        null=True,
                        verbose_name="retired at",
                    ),
                ),
                ("revision", models.BigIntegerField(db_default=0, editable=False, verbose_name="revision")),
                ("next_run_at", models.DateTimeField(blank=True, null=True, verbose_name="next tick")),
                ("last_tick_at", models.DateTimeField(blank=True, null=True, verbose_name="last tick")),
                ("last_error", models.TextField(blank=True, db_default=models.Value(""), verbose_name="last error")),
                ("errors", models.IntegerField(db_default=0, verbose_name="errors in a row")),
                (
                    "retry_at",
                    models.DateTimeField(
                        blank=True,
                        help_text="After an error it is left alone until then.",
                        null=True,
                        verbose_name="tried again at",
                    ),
                ),
                (
                    "skipped",
                    models.BigIntegerField(
                        db_default=0,
                        help_text="Ticks that were left out because an earlier job had not ended.",
                        verbose_name="skipped",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="created at"
                    ),
                ),
                (
                    "updated_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="updated at"
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("every__gte", datetime.timedelta(seconds=1)),
                            ("every__lte", datetime.timedelta(days=36525)),
                        ),
                        name="pgjobs_schedule_every",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cron", ""), ("every__isnull", False)),
                            models.Q(models.Q(("cron", ""), _negated=True), ("every__isnull", True)),
                            _connector="OR",
                        ),
                        name="pgjobs_schedule_cron_or_every",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("misfire__in", ["skip", "once", "all"])), name="pgjobs_schedule_misfire"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("overlap__in", ["allow", "skip", "queue_one"])),
                        name="pgjobs_schedule_overlap",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("source__in", ["code", "admin"])), name="pgjobs_schedule_source"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("max_lateness__gt", datetime.timedelta(0)),
                            ("max_lateness__lte", datetime.timedelta(days=36525)),
                        ),
                        name="pgjobs_schedule_max_lateness",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("next_run_at__gte", datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC)),
                            ("next_run_at__lte", datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pgjobs_schedule_next_run_at",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("last_tick_at__gte", datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC)),
                            ("last_tick_at__lte", datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pgjobs_schedule_last_tick_at",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("retry_at__gte", datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC)),
                            ("retry_at__lte", datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pgjobs_schedule_retry_at",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("updated_at__gte", datetime.datetime(1, 1, 2, 0, 0, tzinfo=datetime.UTC)),
                            ("updated_at__lte", datetime.datetime(9999, 12, 30, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pgjobs_schedule_updated_at",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.Exact(
                                models.Func(
                                    models.F("payload"), function="jsonb_typeof", output_field=models.TextField()
                                ),
                                models.Value("object"),
                            )
                        ),
                        name="pgjobs_schedule_payload_is_object",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                models.Func(
                                    models.F("name"), function="octet_length", output_field=models.IntegerField()
                                ),
                                1,
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                models.Func(
                                    models.F("name"), function="octet_length", output_field=models.IntegerField()
                                ),
                                255,
                            ),
                        ),
                        name="pgjobs_schedule_name_length",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                models.Func(
                                    models.F("kind"), function="octet_length", output_field=models.IntegerField()
                                ),
                                1,
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                models.Func(
                                    models.F("kind"), function="octet_length", output_field=models.IntegerField()
                                ),
                                255,
                            ),
                        ),
                        name="pgjobs_schedule_kind_length",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                models.Func(
                                    models.F("queue"), function="octet_length", output_field=models.IntegerField()
                                ),
                                1,
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                models.Func(
                                    models.F("queue"), function="octet_length", output_field=models.IntegerField()
                                ),
                                255,
                            ),
                        ),
                        name="pgjobs_schedule_queue_length",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Stat",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("minute", models.DateTimeField()),
                ("queue", models.TextField()),
                ("kind", models.TextField()),
                ("worker", models.TextField(db_default=models.Value(""))),
                ("done", models.BigIntegerField(db_default=0)),
                ("retried", models.BigIntegerField(db_default=0)),
                ("dead", models.BigIntegerField(db_default=0)),
                ("failed", models.BigIntegerField(db_default=0)),
                ("cancelled", models.BigIntegerField(db_default=0)),
                ("snoozed", models.BigIntegerField(db_default=0)),
                ("released", models.BigIntegerField(db_default=0)),
                ("lost", models.BigIntegerField(db_default=0)),
                ("wait_ms", models.BigIntegerField(db_default=0)),
                ("run_ms", models.BigIntegerField(db_default=0)),
                ("wait_histogram", pgjobs.models.fields.Array("bigint", blank=True, db_default=models.Value("{}"))),
                ("run_histogram", pgjobs.models.fields.Array("bigint", blank=True, db_default=models.Value("{}"))),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("minute", "queue", "kind", "worker"), name="pgjobs_stat_minute")
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("attempt", models.IntegerField(verbose_name="attempt")),
                (
                    "outcome",
                    models.TextField(
                        choices=[
                            ("error", "Raised an error"),
                            ("failed", "Said it can never work"),
                            ("timeout", "Ran out of time"),
                            ("lost", "Worker lost"),
                            ("crashed", "Worker died"),
                            ("cancelled", "Cancelled"),
                            ("interrupted", "Interrupted by a stopping worker"),
                        ],
                        verbose_name="outcome",
                    ),
                ),
                ("error_class", models.TextField(db_default=models.Value(""), verbose_name="error class")),
                ("error", models.TextField(db_default=models.Value(""), verbose_name="error")),
                ("traceback", models.TextField(db_default=models.Value(""), verbose_name="traceback")),
                ("worker", models.TextField(db_default=models.Value(""), verbose_name="worker")),
                ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="started at")),
                ("finished_at", models.DateTimeField(verbose_name="ended at")),
                ("log", models.TextField(db_default=models.Value(""), verbose_name="captured log")),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="history",
                        to="pgjobs.job",
                    ),
                ),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "indexes": [models.Index(fields=["job", "id"], name="pgjobs_attempt_of_job")],
            },
        ),
        migrations.CreateModel(
            name="Tick",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "schedule",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ticks",
                        to="pgjobs.schedule",
                        verbose_name="schedule",
                    ),
                ),
                ("scheduled_for", models.DateTimeField(verbose_name="nominal time")),
                ("job_id", models.BigIntegerField(blank=True, null=True, verbose_name="job")),
                (
                    "outcome",
                    models.TextField(
                        choices=[
                            ("enqueued", "enqueued"),
                            ("queued", "queued"),
                            ("skipped", "skipped"),
                            ("missed", "missed"),
                        ],
                        db_default=models.Value("enqueued"),
                        verbose_name="outcome",
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=django.db.models.functions.datetime.Now(), verbose_name="created at"
                    ),
                ),
            ],
            options={
                "verbose_name": "tick",
                "verbose_name_plural": "ticks",
                "constraints": [models.UniqueConstraint(fields=("schedule", "scheduled_for"), name="pgjobs_tick_once")],
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(ARCHIVE, DROP_ARCHIVE, hints={"model_name": "archivedjob"})],
            state_operations=[
                migrations.CreateModel(
                    name="ArchivedJob",
                    fields=[
                        ("id", models.BigAutoField(primary_key=True, serialize=False)),
                        (
                            "run_after",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="run after"
                            ),
                        ),
                        (
                            "created_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="created at"
                            ),
                        ),
                        (
                            "updated_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="updated at"
                            ),
                        ),
                        ("attempts", models.IntegerField(db_default=0, verbose_name="attempts")),
                        ("max_attempts", models.IntegerField(db_default=10, verbose_name="max attempts")),
                        (
                            "priority",
                            models.SmallIntegerField(
                                db_default=0,
                                help_text="From -100 to 100; the highest runs first.",
                                verbose_name="priority",
                            ),
                        ),
                        (
                            "refunds",
                            models.SmallIntegerField(
                                db_default=0, help_text="Attempts given back by stopping workers."
                            ),
                        ),
                        (
                            "snoozes",
                            models.SmallIntegerField(
                                db_default=0, help_text="Times that the handler asked to run later."
                            ),
                        ),
                        (
                            "lost",
                            models.SmallIntegerField(
                                db_default=0, help_text="Attempts lost with their worker, in a row."
                            ),
                        ),
                        (
                            "suspect",
                            models.BooleanField(
                                db_default=False, help_text="Its worker died while it ran: it runs alone."
                            ),
                        ),
                        (
                            "status",
                            models.TextField(
                                choices=[
                                    ("pending", "Pending"),
                                    ("reserved", "Running"),
                                    ("done", "Done"),
                                    ("failed", "Failed"),
                                    ("dead", "Dead"),
                                    ("cancelled", "Cancelled"),
                                ],
                                db_default=models.Value("pending"),
                                verbose_name="status",
                            ),
                        ),
                        ("queue", models.TextField(db_default=models.Value("default"), verbose_name="queue")),
                        ("kind", models.TextField(help_text="The name of the handler.", verbose_name="kind")),
                        (
                            "lease",
                            models.BigIntegerField(
                                blank=True, help_text="The token of the claim that holds the job.", null=True
                            ),
                        ),
                        ("reserved_until", models.DateTimeField(blank=True, null=True, verbose_name="reserved until")),
                        ("reserved_at", models.DateTimeField(blank=True, null=True, verbose_name="reserved at")),
                        (
                            "last_attempted_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="last attempted at"),
                        ),
                        ("started_at", models.DateTimeField(blank=True, null=True, verbose_name="first started at")),
                        ("finished_at", models.DateTimeField(blank=True, null=True, verbose_name="finished at")),
                        ("expires_at", models.DateTimeField(blank=True, null=True, verbose_name="expires at")),
                        (
                            "cancel_requested_at",
                            models.DateTimeField(blank=True, null=True, verbose_name="cancel requested at"),
                        ),
                        (
                            "timeout",
                            models.DurationField(
                                blank=True,
                                db_default=datetime.timedelta(seconds=300),
                                help_text="Empty: no limit.",
                                null=True,
                                verbose_name="timeout",
                            ),
                        ),
                        ("schedule_id", models.BigIntegerField(blank=True, null=True)),
                        ("scheduled_for", models.DateTimeField(blank=True, null=True, verbose_name="scheduled for")),
                        (
                            "parent_id",
                            models.BigIntegerField(
                                blank=True, help_text="The job whose handler enqueued this one.", null=True
                            ),
                        ),
                        ("dedupe_key", models.TextField(blank=True, null=True, verbose_name="dedupe key")),
                        ("reserved_by", models.TextField(blank=True, null=True, verbose_name="reserved by")),
                        ("worker", models.TextField(blank=True, null=True, verbose_name="last worker")),
                        (
                            "worker_ids",
                            pgjobs.models.fields.Array(
                                "text",
                                blank=True,
                                db_default=models.Value("{}"),
                                help_text="Who ran it, one entry an attempt, the latest 32.",
                            ),
                        ),
                        (
                            "payload",
                            models.JSONField(
                                blank=True,
                                db_default=models.Value({}, output_field=models.JSONField()),
                                verbose_name="payload",
                            ),
                        ),
                        (
                            "meta",
                            models.JSONField(
                                blank=True, help_text="Context of the enqueueing code.", null=True, verbose_name="meta"
                            ),
                        ),
                        ("last_error", models.TextField(blank=True, null=True, verbose_name="last error")),
                        ("error_class", models.TextField(blank=True, null=True, verbose_name="error class")),
                        ("result", models.JSONField(blank=True, null=True, verbose_name="result")),
                        ("progress", models.JSONField(blank=True, null=True, verbose_name="progress")),
                        (
                            "archived_at",
                            models.DateTimeField(
                                db_default=django.db.models.functions.datetime.Now(), verbose_name="archived at"
                            ),
                        ),
                    ],
                    options={
                        "verbose_name": "archived job",
                        "verbose_name_plural": "archived jobs",
                    },
                ),
            ],
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop, hints={"model_name": "job"}),
        migrations.RunSQL(FUNCTIONS, DROP_FUNCTIONS, hints={"model_name": "job"}),
    ]
