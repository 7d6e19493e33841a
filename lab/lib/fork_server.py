"""The program behind ``bounded_process``: it imports what its children need once and forks one for every call, with its limits set.

Run as ``python -m lab.lib.fork_server`` with a socket as standard input. Each byte on it brings three files: what is asked (a line of JSON, then
the data), where the result goes, and a pipe that is told how the child ended. It ends, with all its children, when the socket is closed.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

RAISED, MEMORY, SIZE = 3, 4, 5  # how a child ends that did not end well
LATE = -1  # told instead of an exit status: killed because its time was over
HEADER = 1 << 20  # bytes of the line of JSON
PIECE = 1 << 20


@dataclass
class ForkedChild:
    status: int  # the pipe that is told how it ended
    deadline: float
    late: bool = False


class Server:
    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self.children: dict[int, ForkedChild] = {}
        self.ended, wake = os.pipe()
        os.set_blocking(self.ended, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until the socket is closed."""
        while True:
            due = min((child.deadline for child in self.children.values() if not child.late), default=None)
            ready, _, _ = select.select([self.channel.fileno(), self.ended], [], [], None if due is None else max(0.0, due - time.monotonic()))
            if self.ended in ready:
                with suppress(BlockingIOError):
                    os.read(self.ended, 4096)
            self.reap()
            self.kill_late()
            if self.channel.fileno() in ready and not self.accept():
                break
        for pid in self.children:
            kill_child_group(pid)

    def accept(self) -> bool:
        """Forks the child of one call; False at the end of the socket."""
        byte, files, _, _ = socket.recv_fds(self.channel, 1, 3)
        if not byte:
            return False
        given, result, status = files
        head, _, _ = os.pread(given, HEADER, 0).partition(b"\n")
        request = json.loads(head)
        with suppress(Exception):  # the child fails with it again and says so
            importlib.import_module(request["function"].partition(":")[0])
        pid = os.fork()
        if pid == 0:
            self.become_child(request, given, len(head) + 1, result, status)
        self.children[pid] = ForkedChild(status, time.monotonic() + request["seconds"])
        os.close(given)
        os.close(result)
        return True

    def become_child(self, request: dict[str, Any], given: int, offset: int, result: int, status: int) -> None:
        """Never returns."""
        code = RAISED
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self.channel.close()
            for descriptor in (status, *(child.status for child in self.children.values())):
                os.close(descriptor)
            os.nice(request["nice"])
            set_child_limits(request)
            code = write_function_values(request, given, offset, result)
        finally:
            os._exit(code)

    def reap(self) -> None:
        while self.children:
            exited = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if exited is None:
                return
            kill_child_group(exited.si_pid)  # what it started; its id is not given to anybody else before it is reaped
            _, status = os.waitpid(exited.si_pid, 0)
            child = self.children.pop(exited.si_pid)
            with suppress(OSError):  # nobody waits any more
                os.write(child.status, b"%d\n" % (LATE if child.late else status))
            os.close(child.status)

    def kill_late(self) -> None:
        now = time.monotonic()
        for pid, child in self.children.items():
            if now >= child.deadline and not child.late:
                child.late = True
                kill_child_group(pid)


def kill_child_group(pid: int) -> None:
    """A child and what it started."""
    for send in (os.killpg, os.kill):
        with suppress(ProcessLookupError, PermissionError):
            send(pid, signal.SIGKILL)


def set_child_limits(request: dict[str, Any]) -> None:
    """Limits that the kernel keeps, whatever the child does. ``RLIMIT_DATA`` counts what is really written to, unlike ``RLIMIT_AS``."""
    for name, value in (("DATA", request["memory"]), ("FSIZE", request["result"]), ("CORE", 0)):
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))
    resource.setrlimit(resource.RLIMIT_CPU, (request["cpu_seconds"], request["cpu_seconds"] + 1))  # SIGXCPU, which says why, before SIGKILL


def write_function_values(request: dict[str, Any], given: int, offset: int, result: int) -> int:
    """Writes what the function gives, a line of JSON for each value. Returns the exit code."""
    module, _, name = request["function"].partition(":")
    try:
        data = [b"".join(read_from(given, offset))] if request["data"] else []
        with open(result, "w", encoding="ascii", buffering=PIECE, closefd=False) as file:
            for value in getattr(importlib.import_module(module), name)(*data, **request["arguments"]):
                file.write(value if isinstance(value, str) else json.dumps(value))
                file.write("\n")
        return 0
    except MemoryError:
        return MEMORY
    except Exception as error:
        if isinstance(error, OSError) and os.lseek(result, 0, os.SEEK_CUR) >= request["result"]:
            return SIZE
        os.ftruncate(result, 0)
        os.pwrite(result, f"{type(error).__name__}: {error}".encode()[:1000], 0)
        return RAISED


def read_from(given: int, offset: int) -> Iterator[bytes]:
    while piece := os.pread(given, PIECE, offset):
        offset += len(piece)
        yield piece


if __name__ == "__main__":
    Server(socket.socket(fileno=0)).serve()
