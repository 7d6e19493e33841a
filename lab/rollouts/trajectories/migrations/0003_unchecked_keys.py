"""Keys that the ingest checks itself, a batch at a time (see ``Rollout``)."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0002_ingest"), ("trajectories", "0002_storage")]

    operations = [
        migrations.AlterField(
            "rollout",
            "run",
            models.ForeignKey(
                db_constraint=False, db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name="samples", to="runs.run"
            ),
        ),
        migrations.AlterField(
            "rollout",
            "prompt",
            models.ForeignKey(
                db_constraint=False, db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name="rollouts", to="trajectories.prompt"
            ),
        ),
        migrations.AlterField(
            "rollouttokens",
            "rollout",
            models.OneToOneField(
                db_constraint=False,
                on_delete=django.db.models.deletion.CASCADE,
                primary_key=True,
                related_name="tokens",
                serialize=False,
                to="trajectories.rollout",
            ),
        ),
    ]
