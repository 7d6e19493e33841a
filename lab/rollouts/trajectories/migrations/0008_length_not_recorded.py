"""Rollouts of other frameworks come without the number of their tokens: not recorded, which is not 0. No row is rewritten."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0007_alternatives")]

    operations = [migrations.AlterField("rollout", "length", models.PositiveIntegerField(null=True))]
