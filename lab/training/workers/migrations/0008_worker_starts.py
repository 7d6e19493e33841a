"""What the commands that start workers did."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0007_allocations")]

    operations = [
        migrations.CreateModel(
            name="WorkerStart",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("queue", models.CharField(max_length=50)),
                ("command", models.JSONField(default=list)),
                ("started_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ended_at", models.DateTimeField(null=True)),
                ("exit_code", models.IntegerField(null=True)),
                ("output", models.TextField(blank=True)),
                ("expected_until", models.DateTimeField()),
                ("worker", models.CharField(blank=True, max_length=200)),
            ],
            options={"indexes": [models.Index(fields=["queue", "-started_at"], name="worker_start_newest")]},
        ),
    ]
