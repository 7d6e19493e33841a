"""An address is verified by mail. Until now every account's counted as verified, also where somebody else may have made the account: those are
verified no more, but for accounts that single sign-on is connected to, whose provider vouches for them. Their owners prove them on the account page.
"""

import django.db.models.functions.text
from django.db import migrations, models


def unverify(apps, schema_editor):
    EmailAddress, SocialAccount = apps.get_model("account", "EmailAddress"), apps.get_model("socialaccount", "SocialAccount")
    EmailAddress.objects.exclude(user__in=SocialAccount.objects.values("user")).update(verified=False)


class Migration(migrations.Migration):
    dependencies = [
        ("accounts", "0005_invited_queues"),
        ("account", "0009_emailaddress_unique_primary_email"),
        ("socialaccount", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="invitation",
            name="mailed_digest",
            field=models.CharField(max_length=64, null=True, unique=True),
        ),
        migrations.AddConstraint(
            model_name="user",
            constraint=models.UniqueConstraint(django.db.models.functions.text.Lower("email"), name="one_account_per_address"),
        ),
        migrations.RunPython(unverify, migrations.RunPython.noop),
    ]
