"""The tree of turns behind a rollout. No row is rewritten: those there are have none."""

from django.db import migrations

from lab.rollouts.trajectories.plain_json import PlainJSONField


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0009_droppedrollouts")]

    operations = [migrations.AddField("rollout", "nodes", PlainJSONField(default=list))]
