"""What exactly-once ingest and catching up need, and arrays that PostgreSQL must not try to compress again."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial")]

    operations = [
        migrations.AddField("attempt", "spool_end", models.BigIntegerField(default=0)),
        migrations.AddField("logchunk", "notice", models.BooleanField(default=False)),
        migrations.AlterModelOptions("logchunk", options={"ordering": ["attempt", "offset", "id"]}),
        migrations.RemoveConstraint("logchunk", "log_once"),
        migrations.AddConstraint("logchunk", models.UniqueConstraint(fields=["run", "attempt", "offset", "notice"], name="log_once")),
        migrations.AddField("metricchunk", "offsets", models.BinaryField(default=b""), preserve_default=False),
        migrations.AddField("metricchunk", "last_offset", models.BigIntegerField(default=0), preserve_default=False),
        migrations.RunSQL(
            [f"ALTER TABLE runs_metricchunk ALTER COLUMN {column} SET STORAGE EXTERNAL" for column in ("steps", "values", "offsets")],
            migrations.RunSQL.noop,
        ),
    ]
