"""Moments that several processes compare are the database's."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("policies", "0001_policies")]

    operations = [
        migrations.AlterField(
            model_name="push",
            name="asked_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
    ]
