"""What attempts ran in and on what. Quick on any table: columns that may be empty."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0009_membership_columns"), ("runs", "0010_queue_order")]

    operations = [
        migrations.CreateModel(
            name="PackageList",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("sha256", models.CharField(max_length=64)),
                ("packages", models.JSONField()),
                (
                    "team",
                    models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name="package_lists", to="accounts.team"),
                ),
            ],
            options={"constraints": [models.UniqueConstraint(fields=("team", "sha256"), name="package_list_once")]},
        ),
        migrations.AddField(model_name="attempt", name="environment", field=models.JSONField(null=True)),
        migrations.AddField(model_name="attempt", name="inputs", field=models.JSONField(null=True)),
        migrations.AddField(
            model_name="attempt",
            name="packages",
            field=models.ForeignKey(
                null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="attempts", to="runs.packagelist"
            ),
        ),
    ]
