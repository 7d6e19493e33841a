"""Whether a worker takes runs, which people decide. Quick on any table: the default is the database's."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0003_gpu_memory")]

    operations = [migrations.AddField(model_name="worker", name="takes_runs", field=models.BooleanField(db_default=True, default=True))]
