"""Moments that several processes compare are the database's."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0006_run_ended")]

    operations = [
        migrations.AlterField(
            model_name="run",
            name="queued_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
    ]
