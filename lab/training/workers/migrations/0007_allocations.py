"""Workers that hold several GPUs or leave after one run. Quick on any table: the defaults are the database's."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0006_packages")]

    operations = [
        migrations.AddField(model_name="worker", name="gpu_count", field=models.PositiveIntegerField(db_default=0, default=0)),
        migrations.AddField(model_name="worker", name="takes_one", field=models.BooleanField(db_default=False, default=False)),
        migrations.AddField(model_name="worker", name="runs_taken", field=models.PositiveIntegerField(db_default=0, default=0)),
    ]
