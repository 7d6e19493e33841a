"""What the page of the audit log filters by: indexes for each filter, and the words of an entry."""

import django.contrib.postgres.indexes
import django.contrib.postgres.search
from django.db import migrations, models
from django.db.models.expressions import Func

SIGNS = "@._-/#:+"


def words_of(field):
    return Func(field, models.Value(SIGNS), models.Value(" " * len(SIGNS)), function="translate", output_field=models.TextField())


class Migration(migrations.Migration):
    dependencies = [("audit", "0002_append_only")]

    operations = [
        migrations.AddField(
            "entry",
            "words",
            models.GeneratedField(
                expression=django.contrib.postgres.search.SearchVector(words_of("who"), words_of("label"), words_of("object_id"), config="simple"),
                output_field=django.contrib.postgres.search.SearchVectorField(),
                db_persist=True,
            ),
        ),
        migrations.AddIndex("entry", models.Index(fields=["team", "kind", "object_id", "-id"], name="audit_object")),
        migrations.AddIndex("entry", models.Index(fields=["team", "via", "-id"], name="audit_via")),
        migrations.AddIndex("entry", models.Index(fields=["team", "address", "-id"], name="audit_address")),
        migrations.AddIndex("entry", models.Index(fields=["team", "at"], name="audit_when")),
        migrations.AddIndex("entry", django.contrib.postgres.indexes.GinIndex(fields=["words"], name="audit_words")),
    ]
