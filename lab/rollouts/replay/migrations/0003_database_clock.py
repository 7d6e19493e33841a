"""Moments that several processes compare are the database's."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("replay", "0002_asked")]

    operations = [
        migrations.AlterField(
            model_name="replay",
            name="created_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
    ]
