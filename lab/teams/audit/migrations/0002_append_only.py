"""The database itself refuses to change or delete an entry. TRUNCATE stays: test databases are emptied by it, and the lab never does."""

from django.db import migrations

REFUSE = """
CREATE FUNCTION audit_entry_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the audit log is append-only: % is refused', TG_OP USING ERRCODE = 'insufficient_privilege';
END
$$;
CREATE TRIGGER audit_entry_append_only BEFORE UPDATE OR DELETE ON audit_entry FOR EACH STATEMENT EXECUTE FUNCTION audit_entry_refuse();
"""
ALLOW = "DROP TRIGGER audit_entry_append_only ON audit_entry; DROP FUNCTION audit_entry_refuse();"


class Migration(migrations.Migration):
    dependencies = [("audit", "0001_entries")]

    operations = [migrations.RunSQL(REFUSE, ALLOW)]
