"""Pytest plugin, loaded before Django's: real PostgreSQL and Redis in a folder of their own, unless the environment names servers."""

import os
import tempfile
import warnings

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
