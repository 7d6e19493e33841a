"""Addresses of webhooks are sealed like their secrets; what was stored in the clear is sealed and then dropped."""

from django.db import migrations, models

from lab.watching.alerts.addresses import PURPOSE, shorten_webhook_url
from lab.lib.sealed import seal_secret, unseal_secret


def seal_addresses(apps, schema_editor):
    for hook in apps.get_model("alerts", "Webhook").objects.iterator():
        hook.address, hook.shown = seal_secret(PURPOSE, hook.url), shorten_webhook_url(hook.url)[:300]
        hook.save(update_fields=["address", "shown"])


def unseal_addresses(apps, schema_editor):
    for hook in apps.get_model("alerts", "Webhook").objects.iterator():
        hook.url = unseal_secret(PURPOSE, bytes(hook.address))
        hook.save(update_fields=["url"])


class Migration(migrations.Migration):
    dependencies = [("alerts", "0002_database_clock")]

    operations = [
        migrations.AddField("webhook", "address", models.BinaryField(default=b""), preserve_default=False),
        migrations.AddField("webhook", "shown", models.CharField(max_length=300, default=""), preserve_default=False),
        migrations.AlterField("webhook", "url", models.CharField(max_length=1000, default="")),
        migrations.RunPython(seal_addresses, unseal_addresses),
        migrations.RemoveField("webhook", "url"),
    ]
