"""Token arrays are packed and compressed by us: stored as they come, in the row itself while it fits a page."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0001_initial")]

    operations = [
        migrations.RunSQL(
            [
                *(
                    f"ALTER TABLE trajectories_rollouttokens ALTER COLUMN {column} SET STORAGE EXTERNAL"
                    for column in ("ids", "lengths", "logprobs", "entropies", "mask")
                ),
                "ALTER TABLE trajectories_rollouttokens SET (toast_tuple_target = 8160)",
            ],
            migrations.RunSQL.noop,
        ),
    ]
