"""Pytest plugin, loaded before Django's: real PostgreSQL and Redis in a folder of their own, unless the environment names servers."""

import os
import tempfile
import warnings

import psycopg

warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")

from lab import embedded  # noqa: E402

if "PYTEST_XDIST_WORKER" in os.environ and os.environ.get(embedded.EMBEDDED) == "1":
    embedded.own_home(os.environ["PYTEST_XDIST_WORKER"])  # tests empty Redis: of several processes each needs one of its own
elif "LAB_HOME" not in os.environ:
    home = tempfile.TemporaryDirectory(prefix="policy-lab-tests-", ignore_cleanup_errors=True)
    os.chmod(home.name, 0o755)  # PostgreSQL runs as another user when the tests run as root
    os.environ["LAB_HOME"] = home.name
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("SECRET_KEY", "of the tests: nothing signed with it is ever used elsewhere")

embedded.provide_services()
if os.environ.get(embedded.EMBEDDED) == "1":  # a database that ends with the tests outlives a crash of its server, not one of the machine
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for change in ("ALTER SYSTEM SET fsync = off", "ALTER SYSTEM SET full_page_writes = off", "SELECT pg_reload_conf()"):
            connection.execute(change)
