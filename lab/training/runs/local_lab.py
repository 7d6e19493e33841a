"""The processes of a lab on this machine, for ``up`` and ``demo``: services, database schema, a web process, a worker for runs, one for analysis."""

from __future__ import annotations

import http.client
import signal
import socket
import sys
import time
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from django.conf import settings
from django.core.management import call_command

from lab import embedded
from lab.lib.child_environment import LAB, environment_for
from lab.lib.half_restored import refuse_half_restored
from lab.lib.known_migrations import refuse_newer_database
from lab.lib.processes import ManagedProcess, kill_tree, start_child_process, stop_child_processes
from lab.lib.refusals import Refusal
from lab.training.workers.models import ANALYSIS

HOST = "127.0.0.1"
READY_SECONDS = 60
WEB_GRACE_SECONDS = 5  # open pages are cut off after this
# Of uvicorn, also in docker-compose.yml. Whose word on a client's address counts is decided by lab/lib/proxies.py; a page's message is small.
# Messages of 2 kB are sent as they are: compressing them for each viewer took as much of the processor as all else that is done for one.
SERVER_OPTIONS = ("--no-proxy-headers", "--no-server-header", "--ws-max-size", "65536", "--ws-per-message-deflate", "false")
SERVICE_CHECK_SECONDS = 2.0


class LabError(RuntimeError):
    """A process of the lab did not start or has ended; the message holds its last words and where its log is."""


def port_is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def prepare_database() -> None:
    """Brings the database up to date. Tasks of other packages are published by the workers. Raises LabError."""
    try:
        refuse_half_restored()
        refuse_newer_database()
    except Refusal as error:
        raise LabError(str(error)) from None
    call_command("migrate", verbosity=0)
    (Path(settings.HOME) / "catalog.json").unlink(missing_ok=True)  # earlier versions wrote one here, which would hide what workers publish


class LocalLab:
    """Web process and workers; ``with`` stops whatever was started, in order, and kills what does not stop."""

    def __init__(self, port: int, worker: bool = True) -> None:
        self.port, self.with_worker = port, worker
        self.url = f"http://{HOST}:{port}"
        self.logs = Path(settings.HOME) / "logs"
        self.children: list[ManagedProcess] = []
        self.services_checked = time.monotonic()

    def __enter__(self) -> LocalLab:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _start(self) -> None:
        environment = {"LAB_URL": self.url, **environment_for(LAB, PYTHONUNBUFFERED="1")}  # links in mails and invitations lead to this port
        manage = str(Path(settings.BASE) / "manage.py")
        web = [sys.executable, "-m", "uvicorn", "lab.asgi:application", "--app-dir", str(settings.BASE), "--host", HOST, "--port", str(self.port)]
        web += ["--timeout-graceful-shutdown", str(WEB_GRACE_SECONDS), "--no-use-colors", *SERVER_OPTIONS]
        self.children.append(start_child_process("web", web, self.logs, environment))
        if self.with_worker:
            self.children.append(start_child_process("worker", [sys.executable, manage, "worker"], self.logs, environment))
            # A worker that trains for hours must not keep a question about stored rollouts waiting. It takes no GPU.
            analysis = [sys.executable, manage, "worker", "--queues", ANALYSIS]
            self.children.append(start_child_process("analysis", analysis, self.logs, {**environment, "CUDA_VISIBLE_DEVICES": ""}))
        deadline = time.monotonic() + READY_SECONDS
        while not self.answers():
            self.check()
            if time.monotonic() > deadline:
                raise LabError(f"the web process did not respond within {READY_SECONDS} s; see {self.children[0].log}")
            time.sleep(0.2)

    def answers(self) -> bool:
        try:
            return self.get("/health/")[0] == 200
        except OSError:
            return False

    def get(self, path: str, cookie: str = "") -> tuple[int, str]:
        """Status and body of a page; redirects are not followed. Raises OSError."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=20)
        try:
            connection.request("GET", path, headers={"Cookie": cookie} if cookie else {})
            reply = connection.getresponse()
            return reply.status, reply.read().decode(errors="replace")
        except http.client.HTTPException as error:
            raise OSError(f"not an answer: {error!r}") from None
        finally:
            connection.close()

    def check(self) -> list[str]:
        """Raises LabError when a process has ended. Embedded services that have died are started again; returns their names."""
        for child in self.children:
            if child.exit_code is not None:
                raise LabError(f"the {child.name} process ended with exit code {child.exit_code}; {child.log} ends with\n{child.last_lines()}")
        if time.monotonic() - self.services_checked < SERVICE_CHECK_SECONDS:
            return []
        self.services_checked = time.monotonic()
        return embedded.revive_services()

    def stop(self) -> None:
        """Stops all; the worker stops and saves its run first. A second Ctrl-C or SIGTERM kills instead of waiting."""
        previous = {number: signal.signal(number, self._kill) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            stop_child_processes(self.children, settings.STOP_GRACE_SECONDS + 15)
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _kill(self, number: int, frame: FrameType | None) -> Any:
        for child in self.children:
            if child.exit_code is None:
                kill_tree(child.process.pid)
