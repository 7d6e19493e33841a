"""Notes, tags and the archive. The database has defaults of its own, so that processes of the version before go on launching."""

import django.contrib.postgres.fields
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0007_database_clock")]

    operations = [
        migrations.AddField(model_name="run", name="archived_at", field=models.DateTimeField(null=True)),
        migrations.AddField(model_name="run", name="notes", field=models.TextField(blank=True, db_default="", default="")),
        migrations.AddField(
            model_name="run",
            name="tags",
            field=django.contrib.postgres.fields.ArrayField(base_field=models.CharField(max_length=30), db_default=[], default=list, size=None),
        ),
    ]
