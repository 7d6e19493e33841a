"""Files without a shared folder: what the store has, and which file a run's spool goes on in. Quick on any table: constants, which the database
gives rows of an older version's processes too."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0012_attempt_memory")]

    operations = [
        migrations.AddField("checkpoint", "stored_at", models.DateTimeField(null=True)),
        migrations.AddField("checkpoint", "store_problem", models.CharField(blank=True, db_default="", default="", max_length=300)),
        migrations.AddField("checkpoint", "forgotten", models.BooleanField(db_default=False, default=False)),
        migrations.AddField("run", "spool_begin", models.BigIntegerField(db_default=0, default=0)),
        migrations.AddField("run", "spool_token", models.CharField(blank=True, db_default="", default="", max_length=32)),
        migrations.CreateModel(
            name="StoreDeletion",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=500)),
                ("asked_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("done_at", models.DateTimeField(null=True)),
            ],
            options={"indexes": [models.Index(condition=models.Q(("done_at", None)), fields=["asked_at"], name="store_deletion_due")]},
        ),
    ]
