"""The index that lists answer from with its texts last, which PostgreSQL reads in two thirds of the time, and one of the few superseded rollouts."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0005_reading")]

    operations = [
        migrations.RemoveIndex("rollout", "rollout_listed"),
        migrations.AddIndex(
            "rollout",
            models.Index(
                fields=["run", "step", "group", "sample"],
                include=["id", "prompt", "length", "superseded", "reward", "advantage", "mean_entropy", "max_entropy", "phase", "finish_reason"],
                name="rollout_listed",
            ),
        ),
        migrations.AddIndex("rollout", models.Index(fields=["run"], condition=models.Q(superseded=True), name="rollout_superseded")),
    ]
