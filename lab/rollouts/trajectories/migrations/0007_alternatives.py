"""The likeliest tokens at every position, the rank of the sampled one, and what the sampler said of it."""

from django.db import migrations, models

ARRAYS = ("sampler_logprobs", "ranks", "alternative_ids", "alternative_logprobs", "alternative_texts")


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0006_listing")]

    operations = [
        *(migrations.AddField("rollouttokens", name, models.BinaryField(default=b"")) for name in ARRAYS),
        migrations.RunSQL(
            [f"ALTER TABLE trajectories_rollouttokens ALTER COLUMN {column} SET STORAGE EXTERNAL" for column in ARRAYS],
            migrations.RunSQL.noop,
        ),
    ]
