"""The columns of tables that a person chose in a team."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0008_newest_deleted_run'),
    ]

    operations = [
        migrations.AddField(
            model_name='membership',
            name='columns',
            field=models.JSONField(db_default={}, default=dict),
        ),
    ]
