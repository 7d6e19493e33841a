"""Requests to stop: the file that the supervisor makes, SIGTERM or SIGINT, or the run's own time limit. All mean: finish the step, save, report."""

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import psutil

from trainers.attempt import ranks

log = logging.getLogger(__name__)

STOP_FILE = "stop"
CLOCK_SLACK = 2.0  # seconds by which the start of a process may be dated wrongly: the kernel counts it from a boot time in whole seconds


class Stopped(Exception):
    """A stop was requested where there is nothing to save yet."""


class StopRequest:
    def __init__(self, folder: Path, minutes: float | None, began: float | None = None) -> None:
        """``began``: when the process began that this one trains for (seconds of ``time.time``); None: it is the one."""
        self.file = folder / STOP_FILE
        self.began = time.time() if began is None else began
        self.deadline = time.monotonic() + 60 * minutes - (time.time() - self.began) if minutes else None
        self.why = ""
        if began is None:
            self.discard_leftover()

    def discard_leftover(self) -> None:
        """A stop file from before this process began was meant for an attempt that is over: kept, it would end every later one."""
        with suppress(FileNotFoundError):
            if self.file.stat().st_mtime < psutil.Process().create_time() - CLOCK_SLACK:
                self.file.unlink()
                log.warning("%s was left over from an earlier attempt and has been removed", self.file)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Takes SIGTERM and SIGINT as requests meanwhile. A second SIGINT interrupts at once."""
        before = {number: signal.signal(number, self.heard) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def heard(self, number: int, frame: FrameType | None) -> None:
        self.why = signal.Signals(number).name
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def requested(self) -> bool:
        if not self.why and self.file.exists():
            self.why = f"the stop request {self.file}"
        if not self.why and self.deadline is not None and time.monotonic() >= self.deadline:
            self.why = "the run's time limit"
        return bool(self.why)

    def requested_anywhere(self) -> bool:
        """Whether one of the run's processes has been asked; all of them ask this at the same places."""
        if ranks.any_of(self.requested()):
            self.why = self.why or "another process"
        return bool(self.why)

    def check(self) -> None:
        """For long work before the first step. Raises Stopped when a stop is requested."""
        if self.requested():
            raise Stopped(self.why)

    def check_anywhere(self) -> None:
        """The same in all of the run's processes at once."""
        if self.requested_anywhere():
            raise Stopped(self.why)
