from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("labels", "0001_initial")]

    operations = [
        migrations.AddField("claim", "seated", models.BooleanField(default=True)),
        migrations.RemoveIndex("claim", "claim_expiry"),
        migrations.AddIndex("claim", models.Index(fields=["queue", "expires_at"], condition=models.Q(seated=True), name="claim_expiry")),
    ]
