"""The words of prompts, to search them."""

import django.contrib.postgres.indexes
import django.contrib.postgres.search
import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("browse", "0001_initial"), ("trajectories", "0005_reading")]

    operations = [
        migrations.CreateModel(
            name="PromptWords",
            fields=[
                (
                    "prompt",
                    models.OneToOneField(
                        db_constraint=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="words",
                        serialize=False,
                        to="trajectories.prompt",
                    ),
                ),
                ("words", django.contrib.postgres.search.SearchVectorField()),
            ],
            options={"indexes": [django.contrib.postgres.indexes.GinIndex(fields=["words"], name="prompt_words")]},
        ),
    ]
