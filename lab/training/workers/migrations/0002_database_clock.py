"""Moments that several processes compare are the database's."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0001_initial")]

    operations = [
        migrations.AlterField(
            model_name="worker",
            name="started_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
        migrations.AlterField(
            model_name="worker",
            name="seen_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
    ]
