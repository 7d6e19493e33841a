"""Optional packages that a worker has. Quick on any table: null where nobody said."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("workers", "0005_worker_use")]

    operations = [migrations.AddField(model_name="worker", name="packages", field=models.JSONField(null=True))]
