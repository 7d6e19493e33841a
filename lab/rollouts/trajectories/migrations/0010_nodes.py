"""The tree of turns behind a rollout. No row is rewritten: those there are have none."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0009_droppedrollouts")]

    operations = [migrations.AddField("rollout", "nodes", models.JSONField(default=list))]
