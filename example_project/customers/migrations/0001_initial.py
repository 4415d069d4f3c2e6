import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="Customer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200)),
                ("email", models.EmailField(max_length=254)),
                ("city", models.CharField(blank=True, max_length=100)),
                ("wants_digest", models.BooleanField(default=True, verbose_name="wants the daily digest")),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                ("crm_synced_at", models.DateTimeField(editable=False, null=True, verbose_name="in the CRM since")),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Digest",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("day", models.DateField(unique=True)),
                ("body", models.TextField(blank=True, editable=False)),
            ],
            options={
                "ordering": ("-day",),
            },
        ),
        migrations.CreateModel(
            name="WeeklyReport",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("week", models.CharField(help_text="As in 2026-W49.", max_length=8, unique=True)),
                ("written_at", models.DateTimeField(auto_now=True)),
                ("new_users", models.PositiveIntegerField()),
                ("new_customers", models.PositiveIntegerField()),
                ("synced_customers", models.PositiveIntegerField()),
                ("digest_mails", models.PositiveIntegerField()),
                ("price_lists", models.PositiveIntegerField()),
                ("products_changed", models.PositiveIntegerField()),
            ],
            options={
                "ordering": ("-week",),
            },
        ),
        migrations.CreateModel(
            name="DigestMail",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sent_at", models.DateTimeField(db_index=True, null=True)),
                ("customer", models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, to="customers.customer")),
                (
                    "digest",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE, related_name="mails", to="customers.digest"
                    ),
                ),
            ],
            options={
                "constraints": [models.UniqueConstraint(fields=("digest", "customer"), name="one_digest_mail_each")],
            },
        ),
    ]
