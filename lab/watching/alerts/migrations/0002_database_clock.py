"""Moments that several processes compare are the database's."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("alerts", "0001_alerts")]

    operations = [
        migrations.AlterField(
            model_name="delivery",
            name="next_try",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
        migrations.AlterField(
            model_name="watch",
            name="next_at",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
        migrations.AlterField(
            model_name="watch",
            name="seen_to",
            field=models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
        ),
    ]
