"""A child process that answers a line for each line, with a time limit on each: for packages that can hang where nothing interrupts them."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

START_SECONDS = 120.0  # importing what the child needs, on a busy machine
END_SECONDS = 5.0
READY = b"ready\n"
PLAIN_NAMES = frozenset(("PATH", "HOME", "LANG", "TMPDIR", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "LD_PRELOAD"))
PLAIN_PREFIXES = ("LC_", "PYTHON", "MALLOC_")
ROOT = Path(__file__).resolve().parents[2]  # where ``python -m trainers`` is found


class ChildTimedOut(TimeoutError):
    """The child did not answer in time and was killed."""


class ChildFailed(RuntimeError):
    """The child cannot be started, or ended by itself."""


# Signals that stop a run reach its whole process group; these children end when their input does.
STEADFAST = ("/bin/sh", "-c", 'trap "" INT TERM; exec "$@"', "sh")


class LineChild:
    """``module`` is run with ``python -m``: it prints READY where it ``greets``, then a line for each line it reads. It starts with the first
    question, and again after a kill.
    """

    def __init__(self, module: str, *arguments: str, greets: bool = True, environment: Mapping[str, str] | None = None) -> None:
        """``environment``: the child's; without one it gets what Python needs, and no secret."""
        self.module, self.arguments, self.greets = module, arguments, greets
        self.environment = environment
        self.process: subprocess.Popen[bytes] | None = None
        self.rest = b""

    def ask(self, line: bytes, seconds: float) -> bytes:
        """The child's answer to one line. Raises ChildTimedOut and ChildFailed; the next question gets a new child then."""
        try:
            process = self.process or self.start()
            write_all(process.stdin, line)
            return self.read_line(process, seconds)
        except (ChildTimedOut, ChildFailed):
            self.kill()
            raise
        except OSError as error:
            self.kill()
            raise ChildFailed(f"{self.module} ended: {error.strerror}") from error

    def start(self) -> subprocess.Popen[bytes]:
        command: Sequence[str] = [*STEADFAST, sys.executable, "-m", self.module, *self.arguments]
        given = pick_plain_environment() if self.environment is None else self.environment
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given, bufsize=0, cwd=ROOT)
        self.rest = b""
        if self.greets and self.read_line(self.process, START_SECONDS) != READY:
            raise ChildFailed(f"{self.module} did not start")
        return self.process

    def read_line(self, process: subprocess.Popen[bytes], seconds: float) -> bytes:
        assert process.stdout is not None
        end = time.monotonic() + seconds
        while b"\n" not in self.rest:
            left = end - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                raise ChildTimedOut(f"took longer than {seconds:g} s")
            if not (piece := os.read(process.stdout.fileno(), 1 << 16)):
                raise ChildFailed(f"{self.module} ended")
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line + b"\n"

    def interrupt(self) -> None:
        """From another thread than the one that asks, which sees the child end and cleans up."""
        if (process := self.process) is not None:
            process.kill()

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is None:
            return
        process.kill()
        end_pipes(process)

    def close(self) -> None:
        """The child ends when its input does."""
        process, self.process = self.process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        end_pipes(process)


def pick_plain_environment() -> dict[str, str]:
    """Where programs and files are and how Python is to behave; one thread."""
    plain = {name: value for name, value in os.environ.items() if name in PLAIN_NAMES or name.startswith(PLAIN_PREFIXES)}
    return plain | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def end_pipes(process: subprocess.Popen[bytes]) -> None:
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def write_all(pipe: IO[bytes] | None, data: bytes) -> None:
    assert pipe is not None
    view = memoryview(data)
    while view:
        view = view[pipe.write(view) or 0 :]
