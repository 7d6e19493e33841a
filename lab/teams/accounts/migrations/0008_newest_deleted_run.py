"""Numbers of runs that are deleted for good are not given again."""

from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('accounts', '0007_user_seen_at'),
    ]

    operations = [
        migrations.AddField(
            model_name='team',
            name='newest_deleted_run',
            field=models.PositiveIntegerField(db_default=0, default=0),
        ),
    ]
