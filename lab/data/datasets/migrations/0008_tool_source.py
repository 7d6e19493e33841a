from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets', '0007_turn_source'),
    ]

    operations = [
        migrations.AlterField(
            model_name='dataset',
            name='source',
            field=models.CharField(choices=[('queues', 'Queues'), ('import', 'Import'), ('turns', 'Turns'), ('tool', 'Tool')], default='queues', max_length=8),
        ),
    ]
