"""Child processes that answer requests, a line for a request, and are kept for a while after the last.

The trainers' commands take seconds to start, nearly all of them imports. Who asks again within KEEP_SECONDS, with a changed prompt or another
what-if, waits for the answer only. A process is never shared: it answers one caller at a time, and one whose answer was not read to its end is
ended.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from django.conf import settings

from lab.lib.child_environment import ChildKind, environment_for
from lab.lib.processes import die_with_parent, kill_tree

KEEP_SECONDS = 120.0
LINE = 64 << 20  # bytes of a line of an answer


class StartError(RuntimeError):
    """A command that could not be started; the message says why."""


class KeptProcess:
    """Raises StartError."""

    def __init__(self, command: list[str], kind: ChildKind, **environment: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                command,
                cwd=settings.BASE,
                env=environment_for(kind, None, **environment),
                preexec_fn=die_with_parent,
                start_new_session=True,
                **pipes,  # type: ignore[call-overload]
            )
        except OSError as error:
            raise StartError(f"could not be started: {error.strerror}") from None
        self.stderr = PipeReader(self.process.stderr)
        self.started_by = os.getpid()

    def usable(self) -> bool:
        """Whether it is this very process's, not one that this process was forked from, and lives."""
        return self.started_by == os.getpid() and self.process.poll() is None

    def end(self) -> None:
        if self.process.poll() is None:
            kill_tree(self.process.pid)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()


class PipeReader:
    """Reads a pipe to its end on a thread and keeps its last lines, so that a chatty process never waits for us."""

    def __init__(self, pipe: Any) -> None:
        self.lines: list[str] = []
        self.thread = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        self.thread.start()

    def _read(self, pipe: Any) -> None:
        for line in pipe:
            self.lines = [*self.lines[-19:], line.decode(errors="replace").strip()]

    def last(self) -> str:
        self.thread.join(2)
        return next((line for line in reversed(self.lines) if line), "")


class IdleProcess:
    """At most one process of a command, which waits for the next request."""

    def __init__(self, start: Callable[[], KeptProcess]) -> None:
        self.start = start
        self.lock = threading.Lock()
        self.process: KeptProcess | None = None
        self.timer: threading.Timer | None = None

    def take(self) -> KeptProcess:
        """The one that waits, or a new one. Raises StartError."""
        with self.lock:
            waiting, self.process = self.process, None
            if self.timer is not None:
                self.timer.cancel()
        return waiting if waiting is not None and waiting.usable() else self.start()

    def keep(self, process: KeptProcess) -> None:
        """Only of the main thread: the kernel ends a child with the thread that has started it (``die_with_parent``)."""
        if threading.current_thread() is not threading.main_thread():
            process.end()
            return
        process.stderr.lines = []
        with self.lock:
            self.process, replaced = process, self.process
            self.timer = threading.Timer(KEEP_SECONDS, self.end, [process])
            self.timer.daemon = True
            self.timer.start()
        if replaced is not None and replaced.usable():
            replaced.end()

    def end(self, process: KeptProcess) -> None:
        """Ends the process if it still waits."""
        with self.lock:
            if self.process is not process:
                return
            self.process = None
        process.end()


class Conversation:
    """A process for the ``with`` block, killed with all it started when ``seconds`` are over. Raises StartError."""

    def __init__(self, idle: IdleProcess, seconds: float) -> None:
        self.idle, self.deadline = idle, time.monotonic() + seconds
        self.answered = True

    def __enter__(self) -> Conversation:
        self.kept = self.idle.take()
        self.timer = threading.Timer(max(0.0, self.deadline - time.monotonic()), lambda: kill_tree(self.kept.process.pid))
        self.timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.timer.cancel()
        self.timer.join()  # it may be at its work
        if self.answered and kind is None and self.kept.usable():
            self.idle.keep(self.kept)
        else:
            self.kept.end()

    def ask(self, request: bytes) -> None:
        """Sends a request; ``answered`` is for the caller to set once its answer is read to the end. Raises OSError."""
        self.answered = False
        assert self.kept.process.stdin
        self.kept.process.stdin.write(request.rstrip(b"\n") + b"\n")
        self.kept.process.stdin.flush()

    def read_line(self) -> bytes:
        """The next line of the answer; empty when the process has ended."""
        assert self.kept.process.stdout
        return self.kept.process.stdout.readline(LINE)

    def is_late(self) -> bool:
        return time.monotonic() >= self.deadline

    def last_words(self) -> str:
        """The last line of what the process wrote to its standard error."""
        return self.kept.stderr.last()

    def exit_code(self) -> int:
        """Waits for the end of the process."""
        return self.kept.process.wait()
