"""The fork server behind ``Sandbox``: it imports what programs may import once, and forks one process for every request.

Started by ``client.py`` with a socket as standard input. Each message on it is the hardest limit in seconds and brings three descriptors, or four: a
memory file with the request in JSON, the pipe for the result, a pipe that is told how the fork ended, and the channel to the other half of a test.
The server never reads a request: the fork does. Forks are killed when their time is over or when nobody holds the other end of the last pipe any
more; the server ends, with all of them, when its owner closes the socket or dies.
"""

from __future__ import annotations

import gc
import json
import os
import random
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trainers.sandbox.answers import run_answer, run_answer_tests
from trainers.sandbox.jail import CHANNEL, RESULT, JailPlan, die_with_server, enter_jail, plan_jail
from trainers.sandbox.modules import load_modules, offer_modules
from trainers.sandbox.programs import Frames, ask_database, call_function, run_program
from trainers.sandbox.protocol import FAILED, JAIL_FAILED, MEMORY, MESSAGE, READY, REFUSED, STATUS

KINDS = {"program": run_program, "calls": call_function, "sql": ask_database, "answer": run_answer, "tests": run_answer_tests}


@dataclass
class Fork:
    pid: int
    process: int  # its descriptor, readable when it has ended
    status: int
    began: float
    deadline: float
    late: bool = False


class Server:
    def __init__(self, channel: socket.socket, owner: int, plan: JailPlan) -> None:
        self.channel, self.plan = channel, plan
        self.forks: dict[int, Fork] = {}  # by either descriptor
        self.poll = select.poll()
        self.poll.register(channel.fileno(), select.POLLIN)
        self.owner = os.pidfd_open(owner)
        self.poll.register(self.owner, select.POLLIN)

    def serve(self) -> None:
        """Until the owner is gone."""
        while True:
            due = min((fork.deadline for fork in self.forks.values() if not fork.late), default=None)
            ready = {descriptor for descriptor, _ in self.poll.poll(None if due is None else max(0.0, due - time.monotonic()) * 1000 + 1)}
            for descriptor in ready:
                fork = self.forks.get(descriptor)
                if fork is not None and descriptor == fork.process:
                    self.end_fork(fork)
                elif fork is not None:  # nobody waits for it any more
                    self.poll.unregister(fork.status)
                    signal.pidfd_send_signal(fork.process, signal.SIGKILL)
            if self.owner in ready or (self.channel.fileno() in ready and not self.accept()):  # last: it reuses numbers of descriptors
                return
            now = time.monotonic()
            for fork in self.forks.values():
                if now >= fork.deadline and not fork.late:
                    fork.late = True
                    signal.pidfd_send_signal(fork.process, signal.SIGKILL)

    def accept(self) -> bool:
        """False at the end of the socket."""
        message, descriptors, _, _ = socket.recv_fds(self.channel, MESSAGE.size, 4)
        if not message:
            return False
        request, result, status, *channel = descriptors
        began, server, pid = time.monotonic(), os.getpid(), os.fork()
        if pid == 0:
            become_program(self.plan, server, request, result, channel[0] if channel else None)
        fork = Fork(pid, os.pidfd_open(pid), status, began, began + MESSAGE.unpack(message)[0])
        self.forks |= {fork.process: fork, status: fork}
        self.poll.register(fork.process, select.POLLIN)
        self.poll.register(status, 0)  # errors alone: the other end is closed
        for descriptor in (request, result, *channel):
            os.close(descriptor)
        return True

    def end_fork(self, fork: Fork) -> None:
        _, ended = os.waitpid(fork.pid, 0)
        with suppress(OSError):  # nobody waits any more
            os.write(fork.status, STATUS.pack(ended, fork.late, time.monotonic() - fork.began))
        for descriptor in (fork.process, fork.status):
            del self.forks[descriptor]
            with suppress(KeyError):
                self.poll.unregister(descriptor)
            os.close(descriptor)


def become_program(plan: JailPlan, server: int, descriptor: int, result: int, channel: int | None) -> None:
    """Never returns."""
    code = FAILED
    try:
        die_with_server(server)
        request = read_request(descriptor)
        limits = request["limits"]
        try:
            enter_jail(plan, result, channel, int(limits["memory"]), int(limits["cpu_seconds"]))
        except Exception as error:
            code = JAIL_FAILED
            Frames(RESULT).send(b"x", str(error).encode()[:500])
            return
        frames = Frames(RESULT)
        frames.send(b"j", b"")
        offer_modules()
        random.seed(0)
        run: Any = KINDS[request["kind"]]
        run(request, frames, CHANNEL) if channel is not None else run(request, frames)
        code = 0
    except MemoryError:
        code = MEMORY
    finally:
        os._exit(code)


def read_request(descriptor: int) -> dict[str, Any]:
    size = os.fstat(descriptor).st_size
    request: dict[str, Any] = json.loads(os.pread(descriptor, size, 0))
    return request


def try_jail(plan: JailPlan) -> str:
    """Why a fork that is in its jail could still do what it must not, or ""; what the kernel says it offers is not taken on trust."""
    told, result = os.pipe()
    pid = os.fork()
    if pid == 0:
        words = "the trial broke down"
        try:
            enter_jail(plan, result, None, 64 << 20, 2)
            words = find_hole()
        except BaseException as error:
            words = f"{type(error).__name__}: {error}"
        finally:
            os.write(RESULT, (words or "held").encode())
            os._exit(0)
    os.close(result)
    said = b""
    while piece := os.read(told, 4096):
        said += piece
    os.close(told)
    os.waitpid(pid, 0)
    return "" if said == b"held" else said.decode() or "the trial was killed"


def find_hole() -> str:
    attempts: dict[str, Callable[[], object]] = {
        "opens files": lambda: os.open("/", os.O_RDONLY),
        "sees files": lambda: os.stat("/"),
        "opens sockets": socket.socket,
        "forks": os.fork,
    }
    for words, attempt in attempts.items():
        try:
            attempt()
        except OSError:
            continue
        return f"a program in the sandbox still {words}"
    return ""


def start_server(owner: int) -> None:
    channel = socket.socket(fileno=0)
    load_modules()
    os.environ.clear()
    sys.setrecursionlimit(1000)
    try:
        plan = plan_jail()
        problem = try_jail(plan)
    except (OSError, KeyError) as error:
        problem = f"{type(error).__name__}: {error}"
    channel.send(REFUSED + problem.encode()[:2000] if problem else READY)
    if not problem:
        gc.collect()
        gc.freeze()  # a fork shares these pages as long as nobody writes to them
        Server(channel, owner, plan).serve()
    os._exit(0)
