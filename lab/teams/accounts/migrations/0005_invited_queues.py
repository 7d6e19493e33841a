"""Labelling queues that an invitation assigns somebody to. With a default of the database: a web process of the version before may still invite."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0004_verified_addresses"),
    ]

    operations = [
        migrations.AddField(
            model_name="invitation",
            name="queues",
            field=models.JSONField(db_default=[], default=list),
        ),
    ]
