"""Calls that read what others sent, made in a child process with limits on time, memory and the size of the result.

A file of a few bytes can take minutes or gigabytes to decode. In a child of its own that costs nobody else anything: the kernel ends it, and the
caller gets words for the person who sent the file. The children are forked by small servers of the process that asks (``fork_server``), one for
each kind of child, which keep imported what they need: a call costs a few milliseconds. Neither a server nor its children know the lab's secrets.

While a call waits it holds no database connection, unless it is inside a transaction.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from django.db import connections

from lab.lib.child_environment import DECODER, ChildKind, environment_for
from lab.lib.fork_server import LATE, MEMORY, SIZE

log = logging.getLogger(__name__)

ROOT = Path(__file__).resolve().parents[2]
GRACE_SECONDS = 5.0  # for the server to say how a child ended, past the child's time


@dataclass(frozen=True)
class ProcessLimits:
    """``seconds`` of the clock and ``cpu_seconds`` of a processor; ``memory`` and ``result`` in bytes. ``patience``: seconds to wait for a place.
    ``nice``: how far a child stands back behind the pages, whose answers somebody waits for.
    """

    seconds: float = 20.0
    cpu_seconds: int = 10
    memory: int = 1 << 30
    result: int = 64 << 20
    patience: float = 10.0
    nice: int = 10


class BoundedError(Exception):
    """Why there is no result: ``message`` goes on from the name of what was sent, ``fix`` says what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


class TooSlow(BoundedError):
    pass


class TooMuchMemory(BoundedError):
    pass


class TooLarge(BoundedError):
    pass


class ChildFailed(BoundedError):
    """The child broke down, or raised something that its function should have turned into a value: ``said`` is what."""

    def __init__(self, message: str, fix: str, said: str) -> None:
        super().__init__(message, fix)
        self.said = said


class TooManyChildren(BoundedError):
    """Nothing is wrong with what was sent: there are as many children as there may be, or the server is gone."""


def iterate_result_values(result: IO[bytes]) -> Iterator[Any]:
    with result:
        for line in result:
            yield json.loads(line)


def explain_child_failure(ended: int, limits: ProcessLimits, function: str, result: IO[bytes]) -> BoundedError:
    """``ended``: the status of ``waitpid``, or LATE."""
    killed = os.WTERMSIG(ended) if ended > 0 and os.WIFSIGNALED(ended) else 0
    if ended == LATE or killed == signal.SIGXCPU:
        return TooSlow(f"took longer than {limits.seconds if ended == LATE else limits.cpu_seconds:g} s to read", "split it")
    code = 0 if killed else os.waitstatus_to_exitcode(ended)
    if code == MEMORY or killed == signal.SIGKILL:  # the kernel's own answer to a machine without memory
        return TooMuchMemory(f"needs more than {limits.memory >> 20:,} MiB of memory to read", "split it")
    if code == SIZE:
        return TooLarge(f"expands to more than {limits.result >> 20:,} MiB when read", "split it")
    result.seek(0)
    said = result.read(1000).decode(errors="replace")
    log.warning("%s failed in its child (status %d): %s", function, ended, said)
    return ChildFailed("could not be read", "check the file and create it again", said or f"killed by signal {killed}")


def release_connections() -> None:
    """Back to the pool: whoever waits needs none."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


class CallSlots:
    """So many calls at a time, of everybody and of one owner."""

    def __init__(self, at_once: int, of_one: int) -> None:
        self.at_once, self.of_one = at_once, of_one
        self.changed = threading.Condition()
        self.owners: Counter[str] = Counter()

    @contextmanager
    def taken(self, owner: str, patience: float) -> Iterator[None]:
        """Raises TooManyChildren after ``patience`` seconds."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.owners[owner] < self.of_one and self.owners.total() < self.at_once, patience):
                raise TooManyChildren("cannot be read now: too many files are being read at once", "try again in a minute")
            self.owners[owner] += 1
        try:
            yield
        finally:
            with self.changed:
                self.owners[owner] -= 1
                self.owners += Counter()  # forgets who has none
                self.changed.notify_all()


class ForkServer:
    """This process's end of a fork server for children of one kind. It is started at the first call, and again when it is gone or when what its
    children may know has changed.
    """

    def __init__(self, kind: ChildKind, **environment: str) -> None:
        self.kind, self.more = kind, environment
        self.environment: dict[str, str] = {}
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.channel: socket.socket | None = None
        self.started_by = 0

    def ask(self, given: IO[bytes], result: IO[bytes], seconds: float) -> int:
        """Has a child made and waits for its end: 0, or what ``explain_child_failure`` explains. Raises TooManyChildren."""
        told, status = os.pipe()
        try:
            try:
                self.send([given.fileno(), result.fileno(), status])
            finally:
                os.close(status)
            waiting = select.poll()  # select() takes no file numbers above 1,023, which a web process with many connections has
            waiting.register(told, select.POLLIN)
            if not waiting.poll(seconds * 1000):
                self.end()
                return LATE
            reply = os.read(told, 64)
        finally:
            os.close(told)
        if not reply:  # the server is gone
            raise TooManyChildren("could not be read: the reader process exited", "try again")
        return int(reply)

    def send(self, files: list[int]) -> None:
        with self.lock:
            for attempt in range(2):
                try:
                    socket.send_fds(self.running(), [b"."], files)
                    return
                except OSError:
                    self.channel = None
                    if attempt:
                        raise TooManyChildren("could not be read: no reader process could be started", "try again in a minute") from None

    def running(self) -> socket.socket:
        """The socket of a server of this very process: one that was forked has none yet. Needs the lock."""
        environment = environment_for(self.kind, None, **self.more)
        if self.channel is not None and self.process is not None and self.started_by == os.getpid() and self.process.poll() is None:
            if environment == self.environment:
                return self.channel
            self.process.kill()
            self.process.wait()
        self.process, self.environment, self.started_by = None, environment, os.getpid()
        self.channel, theirs = socket.socketpair()
        command = [sys.executable, "-m", "lab.lib.fork_server"]
        with theirs:
            self.process = subprocess.Popen(
                command,
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                env=environment,
                cwd=ROOT,
                start_new_session=True,
            )
        return self.channel

    def end(self) -> None:
        """Its children are killed with it at the end of their own limits."""
        with self.lock:
            if self.process is not None and self.started_by == os.getpid():
                self.process.kill()
                self.process.wait()
            self.process = self.channel = None


class ForkedChildren:
    """Calls in children of one kind: their server, and how many there may be at once."""

    def __init__(self, server: ForkServer, slots: CallSlots) -> None:
        self.server, self.slots = server, slots

    def call(self, function: str, owner: str, limits: ProcessLimits, data: bytes | None = None, **arguments: Any) -> Iterator[Any]:
        """The values that ``module:function`` yields, read one by one after it has ended. Raises BoundedError.

        ``arguments`` and values are what JSON holds (a text counts as JSON that is written already); ``data`` comes before the arguments.
        ``owner`` is whose call it is: nobody gets more than a share of the children.
        """
        with self.slots.taken(owner, limits.patience), tempfile.TemporaryFile() as given:
            result = tempfile.TemporaryFile()  # noqa: SIM115 closed by ``iterate_result_values``
            try:
                request = {"function": function, "arguments": arguments, "data": data is not None, **asdict(limits)}
                given.write(json.dumps(request).encode() + b"\n" + (data or b""))
                given.flush()
                release_connections()
                ended = self.server.ask(given, result, limits.seconds + GRACE_SECONDS)
                if ended:
                    raise explain_child_failure(ended, limits, function, result)
                result.seek(0)
            except BaseException:
                result.close()
                raise
        return iterate_result_values(result)


# What people send is decoded by children that need nothing of the lab. Arrow's own pool takes memory in advance.
decoders = ForkedChildren(ForkServer(DECODER, ARROW_DEFAULT_MEMORY_POOL="system", OMP_NUM_THREADS="1"), CallSlots(at_once=4, of_one=2))
call_in_child = decoders.call
