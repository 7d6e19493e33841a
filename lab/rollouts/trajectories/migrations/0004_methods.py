"""What methods did to a rollout's reward, advantage and tokens."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0003_unchecked_keys")]

    operations = [
        migrations.AddField("rollout", "contributions", models.JSONField(default=dict)),
        migrations.AddField("rollout", "shaped", models.JSONField(default=dict)),
        migrations.AddField("rollouttokens", "token_advantages", models.BinaryField(default=b"")),
        migrations.AddField("rollouttokens", "weights", models.BinaryField(default=b"")),
        migrations.RunSQL(
            [
                f"ALTER TABLE trajectories_rollouttokens ALTER COLUMN {column} SET STORAGE EXTERNAL"
                for column in ("token_advantages", "weights")
            ],
            migrations.RunSQL.noop,
        ),
    ]
