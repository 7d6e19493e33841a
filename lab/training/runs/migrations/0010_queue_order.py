"""The order that people give the queue. Quick on any table: a default of the database's, and a column that may be empty."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0009_bin")]

    operations = [
        migrations.AddField(
            model_name="run",
            name="priority",
            field=models.SmallIntegerField(choices=[(1, "High"), (0, "Normal"), (-1, "Low")], db_default=0, default=0),
        ),
        migrations.AddField(model_name="run", name="queue_place", field=models.PositiveIntegerField(null=True)),
    ]
