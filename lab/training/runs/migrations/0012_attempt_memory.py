"""What an attempt was estimated to take and took of memory. Quick on any table: null for those that reported none."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0011_environment")]

    operations = [migrations.AddField(model_name="attempt", name="memory", field=models.JSONField(null=True))]
