"""Pytest plugin, loaded before Django's: real PostgreSQL and Redis in a folder of their own, unless the environment names servers."""

import gc
import os
import tempfile
import warnings
from functools import partial

import _pytest.main
import psycopg

from trainers.contract.frame_stack import call_with_frame_room

gc.disable()  # until every test is imported (tests/conftest.py): a fifth of that time went into looking for garbage where there is none

_pytest.main._main = partial(call_with_frame_room, _pytest.main._main)  # collects and runs the tests: of their pages a fifth of the time went there

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
if os.environ.get(embedded.EMBEDDED) == "1":
    changes = {
        "fsync": "off",  # a database that ends with the tests outlives a crash of its server, not one of the machine
        "full_page_writes": "off",
        "autovacuum": "off",  # or it gives away, in the middle of a test, the room of rows that an earlier one left, and rows come in another order
    }
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        for name, value in changes.items():
            connection.execute(f"ALTER SYSTEM SET {name} = {value}")
        connection.execute("SELECT pg_reload_conf()")
