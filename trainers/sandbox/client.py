"""The owner's end of the fork server: its process, and one request with what comes back."""

from __future__ import annotations

import json
import math
import os
import select
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainers.sandbox.probe import probe_sandbox
from trainers.sandbox.protocol import FRAME, MESSAGE, READY, REFUSED, STATUS
from trainers.sandbox.results import SandboxUnavailable

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from trainers.sandbox import server; server.start_server(int(sys.argv[2]))"
# Without the variables that Python and the C library read, and with the same hashes every time: the same program prints a set in the same order.
ENVIRONMENT = {"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
START_SECONDS = 60.0
GRACE_SECONDS = 5.0  # for the server to say how a fork ended, past its time
PIECE = 1 << 16
REQUEST = 64 << 20  # bytes


@dataclass
class Ended:
    """What came back. ``status`` as waitpid gives it, None when the server is gone; ``flooded``: more came than may, and it was killed."""

    reports: list[tuple[str, dict[str, Any]]] = field(default_factory=list)  # what was printed before each, and the report
    rest: str = ""  # printed after the last report
    jailed: bool = False
    refused: str = ""
    status: int | None = None
    late: bool = False
    flooded: bool = False
    silent: bool = False  # the server went away meanwhile, which no program can bring about
    seconds: float = 0.0


class Request:
    """What one fork is asked. ``seconds`` in all, and ``each`` between two reports (inf: any); ``reply``: bytes that may come back.
    ``channel``: this fork's end of the way to the other half of a test.
    """

    def __init__(self, request: dict[str, Any], seconds: float, reply: int, each: float = math.inf, channel: socket.socket | None = None) -> None:
        data = json.dumps(request).encode()
        if len(data) > REQUEST:
            raise ValueError(f"a program and its input of {len(data):,} bytes; at most {REQUEST:,} are sent to the sandbox")
        self.data, self.seconds, self.reply, self.each, self.channel = data, seconds, reply, each, channel


class Running:
    """A request that a fork works on. Its two pipes are closed by ``close``, which also has the fork killed if it still runs."""

    def __init__(self, request: Request, result: int, status: int, server: subprocess.Popen[bytes] | None) -> None:
        self.request, self.result, self.status, self.server = request, result, status, server
        self.buffer, self.printed, self.left = bytearray(), bytearray(), request.reply
        self.began = self.reported_at = time.monotonic()
        self.ended = Ended()
        self.closed = False

    def wait(self) -> Ended:
        """Until its fork has ended; never for those who may have inherited its pipes."""
        deadline = time.monotonic() + self.request.seconds + GRACE_SECONDS
        poll = select.poll()
        poll.register(self.result, select.POLLIN)
        poll.register(self.status, select.POLLIN)
        try:
            while not self.ended.flooded:
                due = min(deadline, self.reported_at + self.request.each)
                ready = dict(poll.poll(max(0.0, due - time.monotonic()) * 1000 + 1))
                if self.result in ready and not self.read_result():
                    poll.unregister(self.result)
                if self.status in ready:
                    self.read_status()
                    while self.read_result():
                        pass
                    break
                if not ready and time.monotonic() >= due:
                    self.ended.late, self.ended.silent = due < deadline, due == deadline  # silent: the server itself does not answer
                    self.ended.seconds = time.monotonic() - self.began
                    break
        finally:
            self.close()
        self.ended.rest = self.take_printed()
        return self.ended

    def read_result(self) -> bool:
        try:
            piece = os.read(self.result, PIECE)
        except BlockingIOError:
            return False
        self.left -= len(piece)
        if self.left < 0:
            self.ended.flooded = True
            return False
        self.buffer += piece
        self.parse_frames()
        return bool(piece)

    def parse_frames(self) -> None:
        """A program has the pipe and can write anything: what is no frame counts as a flood."""
        while len(self.buffer) >= FRAME.size:
            letter, length = FRAME.unpack_from(self.buffer)
            if letter not in (b"j", b"o", b"r", b"x"):
                self.ended.flooded = True
                return
            if len(self.buffer) < FRAME.size + length:
                return
            data = bytes(self.buffer[FRAME.size : FRAME.size + length])
            del self.buffer[: FRAME.size + length]
            if letter == b"j":
                self.ended.jailed = True
            elif letter == b"x" and not self.ended.jailed:
                self.ended.refused = data.decode(errors="replace")
            elif letter == b"o":
                self.printed += data
            elif letter == b"r":
                self.ended.reports.append((self.take_printed(), parse_report(data)))
                self.reported_at = time.monotonic()

    def take_printed(self) -> str:
        text = self.printed.decode(errors="replace")
        self.printed.clear()
        return text

    def read_status(self) -> None:
        data = os.read(self.status, STATUS.size)
        self.ended.silent = not data
        if data:
            self.ended.status, self.ended.late, self.ended.seconds = STATUS.unpack(data)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            os.close(self.result)
            os.close(self.status)


def parse_report(data: bytes) -> dict[str, Any]:
    """A report, whatever wrote it; {} for what is none."""
    try:
        report = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if b"\\ud" in data.lower():  # halves of surrogates, which are no text
        report = json.loads(json.dumps(report, ensure_ascii=False).encode("utf-8", "replace"))
    return report if isinstance(report, dict) else {}


class ServerProcess:
    """The server of this very process: started at the first request, and again when it is gone or when this process was forked. Threads share it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.started_by = 0

    def submit(self, request: Request) -> Running:
        """Raises SandboxUnavailable."""
        memory = os.memfd_create("request", os.MFD_CLOEXEC)
        result, result_end = os.pipe()
        status, status_end = os.pipe()
        theirs = [memory, result_end, status_end]
        if request.channel is not None:
            theirs.append(request.channel.fileno())
        os.set_blocking(result, False)
        try:
            write_all(memory, request.data)
            self.send(MESSAGE.pack(request.seconds), theirs)
        except BaseException:
            os.close(result)
            os.close(status)
            raise
        finally:
            for descriptor in theirs[:3]:
                os.close(descriptor)
        return Running(request, result, status, self.process)

    def retire(self, lost: subprocess.Popen[bytes] | None) -> None:
        """After a fork's end did not become known; another thread may have started another server already."""
        with self.lock:
            if self.process is lost:
                self.forget()

    def send(self, message: bytes, descriptors: list[int]) -> None:
        with self.lock:
            for attempt in range(2):
                try:
                    socket.send_fds(self.get_channel(), [message], descriptors)
                    return
                except OSError:
                    self.forget()
                    if attempt:
                        raise SandboxUnavailable("the sandbox's server ends whenever it is asked; is this machine out of memory?") from None

    def get_channel(self) -> socket.socket:
        """To the server, which is started where there is none. Needs the lock. Raises SandboxUnavailable."""
        if self.channel is not None and self.process is not None and self.started_by == os.getpid() and self.process.poll() is None:
            return self.channel
        self.forget()
        probe = probe_sandbox()
        if not probe.holds:
            raise SandboxUnavailable(probe.explain())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # -P and -s with an environment of ours are -I without its random hashes; -S: no packages are installed for programs.
            command = [sys.executable, "-P", "-s", "-S", "-c", PROGRAM, str(ROOT), str(os.getpid())]
            self.process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=ENVIRONMENT,
                cwd="/",
                start_new_session=True,
            )
        self.channel, self.started_by = ours, os.getpid()
        ours.settimeout(START_SECONDS)
        with suppress(OSError):
            said = ours.recv(4096)
            ours.settimeout(None)
            if said == READY:
                return ours
            if said:
                self.end()
                raise SandboxUnavailable("Programs are not run on this machine: " + said.removeprefix(REFUSED).decode(errors="replace"))
        self.end()
        raise SandboxUnavailable(f"the sandbox's server did not start within {START_SECONDS:g} s: {' '.join(command[:4])}")

    def forget(self) -> None:
        if self.started_by == os.getpid():
            self.end()
        elif self.channel is not None:  # the one of the process that this one was forked from
            self.channel.close()
        self.process = self.channel = None

    def end(self) -> None:
        """With all its forks: they die with it."""
        if self.channel is not None:
            self.channel.close()
        if self.process is not None and self.started_by == os.getpid():
            self.process.kill()
            self.process.wait()
        self.process = self.channel = None


def write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
