"""What reading needs: an index that lists answer from, prompts across runs, words to search, and more arrays of each token."""

import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
from django.db import migrations, models

ARRAYS = ("reference_logprobs", "ratios", "clipped")


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0004_methods"), ("runs", "0003_reading")]

    operations = [
        migrations.RemoveIndex("rollout", "rollout_step"),
        migrations.AddIndex(
            "rollout",
            models.Index(
                fields=["run", "step", "group", "sample"],
                include=["id", "phase", "superseded", "reward", "advantage", "length", "mean_entropy", "max_entropy", "finish_reason", "prompt"],
                name="rollout_listed",
            ),
        ),
        migrations.AddIndex("rollout", models.Index(fields=["prompt", "run", "step"], name="rollout_prompt")),
        migrations.AddIndex("rollout", models.Index(fields=["run"], condition=~models.Q(filtered=""), name="rollout_filtered")),
        *(migrations.AddField("rollouttokens", name, models.BinaryField(default=b"")) for name in ARRAYS),
        migrations.CreateModel(
            name="RolloutWords",
            fields=[
                (
                    "rollout",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="words",
                        serialize=False,
                        to="trajectories.rollout",
                    ),
                ),
                ("words", django.contrib.postgres.search.SearchVectorField()),
            ],
            options={"indexes": [django.contrib.postgres.indexes.GinIndex(fields=["words"], name="rollout_words")]},
        ),
        migrations.RunSQL(
            [
                *(f"ALTER TABLE trajectories_rollouttokens ALTER COLUMN {column} SET STORAGE EXTERNAL" for column in ARRAYS),
                # Index-only scans need vacuumed pages: a run that has just ended must not wait for a fifth of the table to change.
                "ALTER TABLE trajectories_rollout SET (autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02)",
                "UPDATE runs_run SET last_rollout = COALESCE((SELECT max(id) FROM trajectories_rollout WHERE run_id = runs_run.id), 0)",
            ],
            migrations.RunSQL.noop,
        ),
    ]
