"""``manage.py database-roles``: the SQL that gives the lab a role of its own, which cannot touch what the audit log holds."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import connection

from lab.teams.audit.models import ChainLink, Entry

SQL = """\
-- For psql, as a superuser, connected to the database {database}. It may be run again, and is after a migration made tables.
-- Give both roles a password afterwards: \\password {owner} and \\password {app}
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {owner_text}) THEN CREATE ROLE {owner} LOGIN; END IF;
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {app_text}) THEN CREATE ROLE {app} LOGIN; END IF;
END $$;
ALTER ROLE {app} NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
ALTER DATABASE {database} OWNER TO {owner};
ALTER SCHEMA public OWNER TO {owner};
REVOKE CREATE ON SCHEMA public FROM PUBLIC, {app};
-- Everything belongs to the role that migrates.
DO $$ DECLARE one record; BEGIN
  FOR one IN SELECT c.oid::regclass AS name FROM pg_class c
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm')
      AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = c.oid AND d.deptype = 'e') LOOP
    EXECUTE format('ALTER TABLE %s OWNER TO {owner_format}', one.name); -- views too, by the same words
  END LOOP;
  FOR one IN SELECT p.oid::regprocedure AS name FROM pg_proc p
    WHERE p.pronamespace = 'public'::regnamespace AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.objid = p.oid AND d.deptype = 'e') LOOP
    EXECUTE format('ALTER ROUTINE %s OWNER TO {owner_format}', one.name);
  END LOOP;
END $$;
-- The lab reads and writes rows, and nothing else.
GRANT CONNECT ON DATABASE {database} TO {app};
GRANT USAGE ON SCHEMA public TO {app};
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {app}, PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {app};
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {app};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {app};
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO {app};
-- The audit log and its chain: added to and read.
REVOKE UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER ON {tables} FROM {app};
"""


class Command(BaseCommand):
    help = (
        "Prints SQL for a PostgreSQL of your own: one role owns the tables and migrates, the other is the lab's and can only add to the audit log. "
        "Afterwards DATABASE_URL of the web process and the workers names the second; manage.py migrate is run with one that names the first."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--owner", default="lab_owner", help="the role that owns and migrates (default: lab_owner)")
        parser.add_argument("--app", default="lab_app", help="the role of the web process and the workers (default: lab_app)")

    def handle(self, *args: Any, owner: str, app: str, **options: Any) -> None:
        for name in (owner, app):
            if not (name.isascii() and name.replace("_", "a").isalnum() and len(name) < 64):
                raise CommandError(f"{name!r}: use letters, digits and underscores for a role's name", returncode=2)
        if owner == app:
            raise CommandError("--owner and --app must be two roles: the owner of a table can switch its triggers off", returncode=2)
        quote = connection.ops.quote_name
        tables = ", ".join(quote(model._meta.db_table) for model in (Entry, ChainLink))
        names = {"owner": quote(owner), "app": quote(app), "owner_text": f"'{owner}'", "app_text": f"'{app}'", "owner_format": quote(owner)}
        self.stdout.write(SQL.format(database=quote(str(connection.settings_dict["NAME"])), tables=tables, **names))
