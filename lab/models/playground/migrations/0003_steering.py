"""Sides that are steered: whose vector, and how much of it."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("playground", "0002_database_clock")]

    operations = [
        migrations.AddField(
            model_name="side",
            name="vector",
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="runs.checkpoint"),
        ),
        migrations.AddField(model_name="side", name="alpha", field=models.FloatField(db_default=0.0, default=0.0)),
    ]
