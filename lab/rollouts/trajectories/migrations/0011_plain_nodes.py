"""Trees of turns as plain JSON. A database that got the column as jsonb (before 28 November 2026) has its rollouts rewritten once."""

from django.db import migrations

CONVERT = """
DO $$ BEGIN
    IF (SELECT data_type FROM information_schema.columns
        WHERE table_schema = current_schema AND table_name = 'trajectories_rollout' AND column_name = 'nodes') = 'jsonb' THEN
        ALTER TABLE trajectories_rollout ALTER COLUMN nodes TYPE json USING nodes::json;
    END IF;
END $$
"""


class Migration(migrations.Migration):
    dependencies = [("trajectories", "0010_nodes")]

    operations = [migrations.RunSQL(CONVERT, migrations.RunSQL.noop)]
