from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("policies", "0002_database_clock")]

    operations = [
        migrations.AddField(model_name="gate", name="no_unsafe", field=models.BooleanField(default=True)),
    ]
