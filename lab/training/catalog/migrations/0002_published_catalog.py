"""Tasks and methods of other packages, as workers publish them."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("catalog", "0001_saved_recipes")]

    operations = [
        migrations.CreateModel(
            name="PublishedCatalog",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("additions", models.JSONField()),
                ("worker", models.CharField(max_length=200)),
                ("confirmed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
        ),
    ]
