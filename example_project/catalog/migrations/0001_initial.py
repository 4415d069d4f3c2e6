from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="PriceList",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("file", models.FileField(upload_to="pricelists/%Y/%m")),
                ("uploaded_at", models.DateTimeField(auto_now_add=True)),
                ("job_id", models.BigIntegerField(editable=False, null=True)),
                ("imported_at", models.DateTimeField(editable=False, null=True)),
                (
                    "imported",
                    models.PositiveIntegerField(
                        editable=False, help_text="Rows that went into the catalog.", null=True
                    ),
                ),
                ("bad", models.PositiveIntegerField(editable=False, help_text="Rows that did not.", null=True)),
                (
                    "bad_rows",
                    models.JSONField(default=list, editable=False, help_text="Line and reason of the first of them."),
                ),
            ],
            options={
                "ordering": ("-id",),
            },
        ),
        migrations.CreateModel(
            name="Product",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sku", models.CharField(max_length=40, unique=True, verbose_name="SKU")),
                ("name", models.CharField(max_length=200)),
                ("price", models.DecimalField(decimal_places=2, max_digits=10)),
                ("stock", models.PositiveIntegerField()),
                ("updated_at", models.DateTimeField(auto_now=True, db_index=True)),
            ],
            options={
                "ordering": ("sku",),
            },
        ),
    ]
