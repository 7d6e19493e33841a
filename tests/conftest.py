"""The cast: an owner and a teammate of one team, and a stranger from another."""

import gc
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import pytest
import redis
from django.conf import settings
from django.db import connection
from django.test import Client, TransactionTestCase
from pytest_django.plugin import DjangoDbBlocker
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile

from lab.lib.garbage_collection import freeze_loaded
from lab.lib.processes import ManagedProcess, kill_tree, start_child_process
from lab.teams.accounts.models import Membership, Role, Team, User
from lab.teams.accounts.sessions import begin_session
from lab.training.catalog import published
from lab.training.runs.config_fields import list_config_fields
from tests.emptying import empty_database
from tests.migrated import DUMP, make_tables_from, make_template

TransactionTestCase._fixture_teardown = empty_database  # type: ignore[method-assign]
look_for_static_files = WhiteNoiseMiddleware.add_files_from_finders
STATIC_FILES: dict[str, StaticFile] = {}  # by address
# What all tests want is set once: a fixture that sets it takes a tenth of what a short test does.
settings.PASSWORD_HASHERS = ["tests.hashing.QuickHasher"]
settings.POOL_SIZE = 1_000_000  # Django's test client leaves downloads that nobody reads open, as no server does: each keeps its place
published.LOOK.again = float("inf")  # test files read the catalogue while they are imported, before there is a test database


def reuse_static_files(middleware: WhiteNoiseMiddleware) -> None:
    """Every test client has middleware of its own, and each would look at some 400 files anew: a sixth of what tests of pages take."""
    if not STATIC_FILES:
        look_for_static_files(middleware)
        STATIC_FILES.update(middleware.files)
    middleware.files.update(STATIC_FILES)


WhiteNoiseMiddleware.add_files_from_finders = reuse_static_files


def log_in_by_session(client: Client, user: User, backend: str) -> None:
    """What ``force_login`` comes to, in four statements of its fifteen."""
    client.cookies[settings.SESSION_COOKIE_NAME] = begin_session(user, backend)
    client.cookies[settings.SESSION_COOKIE_NAME].update(
        {"path": "/", "domain": settings.SESSION_COOKIE_DOMAIN or "", "secure": settings.SESSION_COOKIE_SECURE or ""}
    )


Client._login = log_in_by_session  # type: ignore[method-assign]


def pytest_collection_finish(session: pytest.Session) -> None:
    """A connection of the pool made before the test database would be used ever after: tests would ask one database, the lab's processes another."""
    if connection.connection is not None or connection._connection_pools:
        raise pytest.UsageError("a test file asked the database while it was imported: ask inside a fixture or a test")
    freeze_loaded()  # as in the web process, a 25th of the tests' time; and a collection (each training makes two) need not look through torch again
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def freeze_leftovers() -> None:
    """What a test file leaves, the pages and the API that it was the first to ask above all, stays too: the trainings of the next files would look
    through that for garbage again and again, 0.3 s each time.
    """
    freeze_loaded()


@pytest.fixture(scope="session")
def meeting_place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all processes of this test run."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings_parallel_suffix: None, django_db_blocker: DjangoDbBlocker, meeting_place: Path) -> None:
    with django_db_blocker.unblock():
        make_template(meeting_place)


@pytest.fixture(scope="session")
def make_tables(django_db_setup: None, meeting_place: Path) -> Callable[[str], None]:
    """Makes the tables of the lab in the empty database of a URL."""
    return partial(make_tables_from, meeting_place / DUMP)


def make_member(email: str, team: Team, role: Role = Role.RESEARCHER) -> User:
    user = User.objects.create_user(email, "correct horse battery")
    Membership.objects.create(team=team, user=user, role=role)
    return user


@pytest.fixture
def team(db: None) -> Team:
    list_config_fields.cache_clear()  # another database of this process may have had a team and a run of the same numbers
    return Team.objects.create(name="Reasoning", slug="reasoning")


@pytest.fixture
def owner(team: Team) -> User:
    return make_member("owner@example.org", team, Role.OWNER)


@pytest.fixture
def teammate(team: Team) -> User:
    return make_member("teammate@example.org", team)


@pytest.fixture
def stranger(db: None) -> User:
    return make_member("stranger@example.org", Team.objects.create(name="Elsewhere", slug="elsewhere"), Role.OWNER)


@pytest.fixture
def as_owner(client: Client, owner: User) -> Client:
    client.force_login(owner)
    return client


@pytest.fixture
def as_stranger(stranger: User) -> Client:
    client = Client()
    client.force_login(stranger)
    return client


@pytest.fixture(scope="session")
def places_for_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return (folder / str(number) for number in count())


@pytest.fixture(autouse=True)
def run_folders(places_for_runs: Iterator[Path]) -> Path:
    """A place of the test's own, made by the first run that is put there: most tests have none."""
    settings.RUNS_ROOT = next(places_for_runs)
    return settings.RUNS_ROOT


@pytest.fixture
def process_env(transactional_db: None, run_folders: Path) -> dict[str, str]:
    """Environment for real worker and web processes: the test database, the tests' Redis (emptied), this test's run folders."""
    if os.environ.get("LAB_EMBEDDED") == "1":  # messages of an earlier test name runs that are gone
        redis.from_url(os.environ["REDIS_URL"]).flushdb()
    return environment(run_folders)


def environment(run_folders: Path) -> dict[str, str]:
    url = urlsplit(os.environ["DATABASE_URL"])
    test_url = urlunsplit(url._replace(path="/" + connection.settings_dict["NAME"]))
    return {**os.environ, "DATABASE_URL": test_url, "LAB_RUNS": str(run_folders), "DJANGO_SETTINGS_MODULE": "lab.settings", "PYTHONUNBUFFERED": "1"}


@pytest.fixture
def start_process(process_env: dict[str, str], tmp_path: Path) -> Iterator[Callable[..., ManagedProcess]]:
    """Starts real processes of the lab: ``start_process("worker", "manage.py", "worker", LAB_SWEEP_SECONDS="1")``; at the end of the test they
    and all they started are killed. Their output is in ``child.log``.
    """
    children: list[ManagedProcess] = []

    def begin(name: str, *arguments: str, **environment: str) -> ManagedProcess:
        children.append(start_child_process(name, [sys.executable, *arguments], tmp_path / "logs", {**process_env, **environment}))
        return children[-1]

    yield begin
    for child in children:
        if child.exit_code is None:
            kill_tree(child.process.pid)
        child.process.wait()


@pytest.fixture(autouse=True)
def no_published_catalogue(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that a worker of another test published is offered, and no test counts the query that looks for it."""
    look = published.AdditionsReader()
    look.again = float("inf")
    monkeypatch.setattr(published, "LOOK", look)
