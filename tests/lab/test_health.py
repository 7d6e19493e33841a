import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.test import Client

from lab.lib import readiness
from lab.lib.known_migrations import list_missing_migrations, list_own_migrations

SECRETS = ("127.0.0.1", "postgres", "lab_user_of_tests", "password of tests")


@pytest.fixture(autouse=True)
def fresh_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "probe", readiness.ReadinessProbe(readiness.ask_database, readiness.ask_redis))


@pytest.fixture
def silent_server() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def name_services(monkeypatch: pytest.MonkeyPatch, settings: Any, *, database: int = 0, redis: int = 0) -> None:
    """Ports of this machine in the place of the tests' own services."""
    if database:
        elsewhere = {"HOST": "127.0.0.1", "PORT": str(database), "USER": "lab_user_of_tests", "PASSWORD": "password of tests"}
        for name, value in elsewhere.items():
            monkeypatch.setitem(connections.settings["default"], name, value)
    if redis:
        settings.REDIS_URL = f"redis://:password%20of%20tests@127.0.0.1:{redis}/0"


@pytest.mark.django_db
def test_health_answers_without_a_login(client: Client) -> None:
    assert client.get("/health/").json() == {"status": "ok"}


def test_a_living_process_says_so_and_asks_the_database_nothing(client: Client) -> None:
    response = client.get("/health/live")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert "no-store" in response["Cache-Control"]
    assert client.post("/health/live").status_code == 405


@pytest.mark.django_db
def test_a_ready_process_names_what_it_has_asked(client: Client) -> None:
    response = client.get("/health/ready")
    assert response.json() == {"status": "ok", "checks": {"database": "ok", "migrations": "ok", "redis": "ok"}}
    assert response.status_code == 200


def test_services_that_hang_are_waited_for_two_seconds_and_one_thread_each(
    client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any, silent_server: int
) -> None:
    name_services(monkeypatch, settings, database=silent_server, redis=silent_server)
    monkeypatch.setattr(readiness, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(
        readiness, "SECONDS", 0.4
    )  # of the wait; that of a driver may be longer, as libpq's is, or without end, as a look-up of a name
    over = threading.Event()
    readiness.probe.checks[1].ask = lambda: {"redis": str(over.wait())}
    began = time.monotonic()
    answers = [client.get("/health/ready") for _ in range(2)]
    assert time.monotonic() - began < 2
    assert sum(thread.name.startswith("readiness") for thread in threading.enumerate()) == 2
    over.set()
    for response in answers:
        assert response.status_code == 503
        assert response["Retry-After"] == "5"
        assert set(response.json()["checks"]) == {"database", "migrations", "redis"}
        assert response.json()["status"] == "unavailable"
        assert "does not answer within 2 s" in response.json()["checks"]["redis"]
        assert not [secret for secret in SECRETS if secret in response.content.decode()]
    assert client.get("/health/live").status_code == 200


@pytest.fixture
def forgetful_server(db: None) -> Iterator[int]:
    """A port that leads to the tests' database until the first query: it goes no further, and nothing comes back, as behind a cable that is cut."""
    parameters = connections["default"].get_connection_params()
    path = f"{parameters['host']}/.s.PGSQL.{parameters.get('port') or 5432}"
    if not Path(path).exists():
        pytest.skip("the tests' database has no socket in a folder")

    opened: list[socket.socket] = []

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if b"django_migrations" not in data:
                    target.sendall(data)

    def serve(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, database = server.accept()[0], socket.socket(socket.AF_UNIX)
                opened.extend([client, database])
                database.connect(path)
                for ends in ((client, database), (database, client)):
                    threading.Thread(target=carry, args=ends, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, args=(server,), daemon=True).start()
        yield int(server.getsockname()[1])
    for end in opened:  # the test database cannot be taken away while somebody is connected
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


def test_a_database_behind_a_cut_cable_keeps_no_thread_and_is_asked_again(
    client: Client, monkeypatch: pytest.MonkeyPatch, forgetful_server: int
) -> None:
    monkeypatch.setattr(readiness, "KEPT_SECONDS", 0.0)
    monkeypatch.setattr(readiness, "SECONDS", 1.0)
    with monkeypatch.context() as cut:
        for name, value in {"HOST": "127.0.0.1", "PORT": str(forgetful_server)}.items():
            cut.setitem(connections.settings["default"], name, value)
        assert client.get("/health/ready").status_code == 503
        asking = readiness.probe.checks[0].thread
        assert asking is not None
        asking.join(5)
        assert not asking.is_alive()
    assert client.get("/health/ready").json()["checks"]["database"] == "ok"


def test_services_that_are_down_are_named_at_once_and_without_their_address(
    client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    name_services(monkeypatch, settings, database=1, redis=1)
    began = time.monotonic()
    response = client.get("/health/ready")
    assert time.monotonic() - began < 1
    assert response.status_code == 503
    assert response.json() == {
        "status": "unavailable",
        "checks": {"database": "does not answer", "migrations": "does not answer", "redis": "does not answer"},
    }
    assert "the database does not answer" in caplog.text  # and there it says why
    assert client.get("/health/ready").json() == response.json()


@pytest.mark.django_db
def test_without_redis_pages_are_still_served(client: Client, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    name_services(monkeypatch, settings, redis=1)
    response = client.get("/health/ready")
    assert (response.status_code, response.json()["status"]) == (200, "degraded")
    assert response.json()["checks"] == {"database": "ok", "migrations": "ok", "redis": "does not answer"}


def test_a_database_of_another_version_is_not_ready() -> None:
    own = list_own_migrations()
    assert readiness.compare_migrations(own) == "ok"
    assert readiness.compare_migrations(own | {"runs.9999_of_tomorrow"}) == "the database was migrated by a newer version of the lab"
    assert readiness.compare_migrations(own - {"runs.0001_initial"}) == "the database is not migrated to this version of the lab"
    assert not readiness.Readiness({"database": "ok", "migrations": readiness.compare_migrations(set()), "redis": "ok"}).is_ready


def test_a_migration_whose_work_is_done_under_other_names_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lab.lib.known_migrations.list_own_migrations", lambda: {"a.0001", "a.0002", "a.0001_squashed"})
    monkeypatch.setattr("lab.lib.known_migrations.read_replacements", lambda: {"a.0001_squashed": {"a.0001", "a.0002"}})
    assert list_missing_migrations(["a.0001", "a.0002"]) == []
    assert list_missing_migrations(["a.0001_squashed"]) == []
    assert list_missing_migrations(["a.0001"]) == ["a.0001_squashed", "a.0002"]
