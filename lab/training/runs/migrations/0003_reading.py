"""How far rollouts can be searched, and where a chunk of metric points has its extremes."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_ingest")]

    operations = [
        migrations.AddField("run", "last_rollout", models.BigIntegerField(default=0)),
        migrations.AddField("run", "searchable_to", models.BigIntegerField(default=0)),
        migrations.AddField("metricchunk", "lo_step", models.PositiveIntegerField(null=True)),
        migrations.AddField("metricchunk", "hi_step", models.PositiveIntegerField(null=True)),
    ]
