"""Requests to stop: the file that the supervisor makes, SIGTERM or SIGINT, or the run's own time limit. All mean: finish the step, save, report."""

import logging
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

log = logging.getLogger(__name__)

STOP_FILE = "stop"


class Stopped(Exception):
    """A stop was requested where there is nothing to save yet."""


class StopRequest:
    def __init__(self, folder: Path, minutes: float | None) -> None:
        self.file = folder / STOP_FILE
        self.deadline = time.monotonic() + 60 * minutes if minutes else None
        self.why = ""

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
            self.why = "a stop request"
        if not self.why and self.deadline is not None and time.monotonic() >= self.deadline:
            self.why = "the run's time limit"
        return bool(self.why)

    def check(self) -> None:
        """For long work before the first step. Raises Stopped when a stop is requested."""
        if self.requested():
            raise Stopped(self.why)
