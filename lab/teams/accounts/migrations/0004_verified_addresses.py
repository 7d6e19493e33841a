"""Addresses of the accounts there are count as verified. The cache holds attempts to sign in; an unlogged table, because it may be lost."""

from typing import Any

from django.db import migrations


def verify(apps: Any, schema_editor: Any) -> None:
    User, EmailAddress = apps.get_model("accounts", "User"), apps.get_model("account", "EmailAddress")
    for user in User.objects.exclude(email=""):
        EmailAddress.objects.filter(email__iexact=user.email).exclude(user=user).delete()
        EmailAddress.objects.filter(user=user, primary=True).exclude(email=user.email.lower()).update(primary=False)
        EmailAddress.objects.update_or_create(user=user, email=user.email.lower(), defaults={"verified": True, "primary": True})


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_teams_and_tokens"), ("account", "0009_emailaddress_unique_primary_email")]

    operations = [
        migrations.RunPython(verify, migrations.RunPython.noop),
        migrations.RunSQL(
            "CREATE UNLOGGED TABLE IF NOT EXISTS lab_cache (cache_key varchar(255) PRIMARY KEY, value text NOT NULL, expires timestamptz NOT NULL);"
            "CREATE INDEX IF NOT EXISTS lab_cache_expires ON lab_cache (expires);",
            "DROP TABLE lab_cache;",
        ),
    ]
