"""A database is migrated once for all test processes and for the labs that tests start: the first one's is kept as SQL, which takes the others
a seventh of the processor time.
"""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from lab.embedded import EMBEDDED, hold_file_lock, started_postgres

TEMPLATE, DUMP = "migrated", "migrated.sql"


def make_template(folder: Path) -> None:
    """Has the test database be a copy of a migrated one, where the server is the tests' own. ``folder``: where the processes of a session meet."""
    if os.environ.get(EMBEDDED) != "1":
        return
    url = url_of(TEMPLATE)
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as server:
        server.execute(f"CREATE DATABASE {TEMPLATE}")
    with hold_file_lock(folder / "migrated.lock"):
        if not (folder / DUMP).exists():
            migrate_database(TEMPLATE)
            run_postgres_program("pg_dump", url, "-f", str(folder / "migrated.part"))
            (folder / "migrated.part").rename(folder / DUMP)
        else:
            make_tables_from(folder / DUMP, url)
    connection.settings_dict["TEST"]["TEMPLATE"] = TEMPLATE


def migrate_database(name: str) -> None:
    named, connection.settings_dict["NAME"] = connection.settings_dict["NAME"], name
    try:
        call_command("migrate", verbosity=0, interactive=False)
    finally:
        connection.close()
        connection.close_pool()
        connection.settings_dict["NAME"] = named


def make_tables_from(dump: Path, url: str) -> None:
    """In an empty database; by migrating it where the environment names a server, of which no dump is made."""
    if dump.exists():
        run_postgres_program("psql", url, "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, "-f", str(dump))
    else:
        subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], env={**os.environ, "DATABASE_URL": url}, check=True, cwd=settings.BASE)


def url_of(name: str) -> str:
    return urlunsplit(urlsplit(os.environ["DATABASE_URL"])._replace(path=f"/{name}"))


def run_postgres_program(program: str, url: str, *arguments: str) -> None:
    done = subprocess.run([str(started_postgres()[0].bin_path / program), *arguments, url], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
