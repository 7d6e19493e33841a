from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('sweeps', '0001_initial'),
    ]

    operations = [
        migrations.AlterField(
            model_name='sweep',
            name='sampler',
            field=models.CharField(choices=[('tpe', 'Bayesian (TPE)'), ('mutations', 'Mutations (Q-learning)'), ('random', 'Random'), ('grid', 'Grid'), ('seeds', 'Seeds only')], max_length=10),
        ),
    ]
