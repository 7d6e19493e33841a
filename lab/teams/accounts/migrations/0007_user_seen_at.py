"""When a person was last seen stays when their sessions are deleted."""

from django.db import migrations, models

FILL = """
UPDATE accounts_user AS u SET seen_at = greatest(
  u.last_login,
  (SELECT max(s.last_seen_at) FROM usersessions_usersession AS s WHERE s.user_id = u.id),
  (SELECT max(t.last_used_at) FROM accounts_apitoken AS t WHERE t.user_id = u.id)
)
"""


class Migration(migrations.Migration):
    dependencies = [("accounts", "0006_proved_addresses"), ("usersessions", "0001_initial")]

    operations = [
        migrations.AddField(model_name="user", name="seen_at", field=models.DateTimeField(null=True)),
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
    ]
