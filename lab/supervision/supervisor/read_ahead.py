"""The next lines of a spool are read while the present ones are stored: that is waiting for PostgreSQL for a quarter of its time."""

from __future__ import annotations

import threading
from pathlib import Path

from lab.supervision.supervisor.stored_events import read_stored_lines
from trainers.contract.spool import Line

Stretch = tuple[Path, int, int]  # a spool, an offset in it, and about how many bytes from there


class Reading(threading.Thread):
    """Reads and decodes the whole lines of a stretch."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(daemon=True)
        self.stretch = stretch
        self.lines: list[Line] = []

    def run(self) -> None:
        self.lines = list(read_stored_lines(*self.stretch))


class ReadAhead(threading.local):
    """One stretch is read ahead for each thread that stores. Whoever wants other lines reads them without it."""

    reading: Reading | None = None

    def take(self, path: Path, offset: int, limit: int) -> list[Line]:
        """The whole lines after ``offset``, about ``limit`` bytes of them."""
        reading, self.reading = self.reading, None
        lines: list[Line] = []
        if reading is not None:
            reading.join()
            lines = reading.lines if reading.stretch == (path, offset, limit) else []
        return lines or list(read_stored_lines(path, offset, limit))

    def start(self, path: Path, offset: int, limit: int) -> None:
        """Nothing where less than ``limit`` bytes follow: a line more may have come by the time they are taken."""
        try:
            follows = path.stat().st_size - offset
        except FileNotFoundError:  # deleted with its run
            return
        if follows >= limit:
            self.reading = Reading((path, offset, limit))
            self.reading.start()
