"""Experiment grids: the factors whose levels are combined, and the budget that all cells are compared at."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ablations', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='ablation',
            name='budget',
            field=models.JSONField(db_default={}, default=dict),
        ),
        migrations.AddField(
            model_name='ablation',
            name='factors',
            field=models.JSONField(db_default=[], default=list),
        ),
    ]
