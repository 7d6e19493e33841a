"""How much memory a worker's GPU has; 0 of those that registered before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0002_database_clock")]

    operations = [migrations.AddField(model_name="worker", name="gpu_memory", field=models.BigIntegerField(db_default=0, default=0))]
