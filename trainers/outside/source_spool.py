"""Another framework's files, read into a spool of our own: the place in the source is written after the lines it stands for, and the lab is sent
only lines whose place is written. A process that dies in between reads on from there, and nothing is lost or sent twice.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import structs

from trainers.contract.events import AnyEvent, AttemptFinished, AttemptStarted, Metrics, Rollout
from trainers.contract.spool import SPOOL
from trainers.outside.readers.base import Item, Rewritten, RunReader, SourceError
from trainers.outside.step_means import StepMeans

POSITION = "position.json"
BUFFER_BYTES = 4 << 20
COMMIT_SECONDS = 0.5
encode = msgspec.json.Encoder().encode

Outcome = Literal["finished", "stopped", "failed"]


def read_position(folder: Path) -> dict[str, Any]:
    """Of what was read into the folder. Raises SourceError for a folder that holds a run of another kind."""
    path, spool = folder / POSITION, folder / SPOOL
    if path.exists():
        return dict(json.loads(path.read_bytes()))
    if spool.exists() and spool.stat().st_size:
        raise SourceError(f"{folder} holds a run that was not read from files: name another folder with --keep")
    return {"spool": 0, "attempt": 0, "open": False, "step": 0, "means": {}, "sources": {}}


def name_source(format_name: str, path: Path) -> str:
    """Under which its place is kept."""
    return f"{format_name}:{path}"


def lock_for_one_reader(file: int, folder: Path) -> None:
    """Two processes that read into one spool would tear each other's lines. Raises SourceError."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise SourceError(f"another process reads into {folder}: end it first, or name another folder with --keep") from None


class SourceSpool:
    """``readers`` share one run. ``measured``: one of them brings metrics, so that none are worked out from rollouts."""

    def __init__(self, folder: Path, position: dict[str, Any], readers: Iterable[RunReader], total_steps: int, measured: bool) -> None:
        self.folder, self.position, self.readers = folder, position, [*readers]
        self.total_steps, self.measured = total_steps, measured
        self.means = StepMeans(position["means"])
        self.pending: list[bytes] = []
        self.pending_bytes, self.committed_at = 0, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        self.file = os.open(folder / SPOOL, os.O_RDWR | os.O_CREAT, 0o644)
        lock_for_one_reader(self.file, folder)
        os.ftruncate(self.file, position["spool"])  # what follows was never noted, and never sent
        os.lseek(self.file, 0, os.SEEK_END)
        self.commit()

    def take_new(self, final: bool) -> int:
        """Reads what has come; how many events that was. Raises SourceError."""
        count = 0
        for reader in self.readers:
            for items in reader.read_new_items(final):
                for item in items:
                    self.take_item(item)
                count += len(items)
                if self.pending_bytes >= BUFFER_BYTES or time.monotonic() - self.committed_at > COMMIT_SECONDS:
                    self.commit()
        self.commit()
        return count

    def take_item(self, item: Item) -> None:
        if isinstance(item, Rewritten):
            self.position["means"].clear()
            self.start_attempt(self.position["attempt"] + 1, max(0, item.step - 1))
            return
        if not self.position["open"]:
            self.start_attempt(max(1, self.position["attempt"]), self.position["step"], at=item.time)
        if isinstance(item, Rollout) and not self.measured:
            for metrics in self.means.add(item):
                self.put(metrics)
        self.put(item)

    def start_attempt(self, attempt: int, from_step: int, at: float = 0.0) -> None:
        """Also takes an ended run up again: the same attempt is told to have started once more."""
        self.position |= {"attempt": attempt, "open": True, "step": from_step}
        started = AttemptStarted(
            attempt=attempt, time=at, from_step=from_step, total_steps=self.total_steps, pid=0, host="", device="", command=[], versions={}
        )
        self.put(started)

    def put(self, event: AnyEvent) -> None:
        line = encode(structs.replace(event, attempt=self.position["attempt"], time=event.time or time.time())) + b"\n"
        self.pending.append(line)
        self.pending_bytes += len(line)
        if isinstance(event, Rollout | Metrics):
            self.position["step"] = max(self.position["step"], event.step)

    def finish(self, outcome: Outcome, error: str = "") -> None:
        """The run has ended, as far as anybody knows; what comes later takes it up again."""
        if not self.position["open"]:
            return
        for metrics in self.means.close_all():
            self.put(metrics)
        self.put(AttemptFinished(attempt=1, time=0.0, outcome=outcome, step=self.position["step"], error=error))
        self.position["open"] = False
        self.commit()

    def commit(self) -> None:
        """Lines first, then the place: both durable."""
        self.committed_at = time.monotonic()
        data = b"".join(self.pending)
        self.pending, self.pending_bytes = [], 0
        view = memoryview(data)
        while view:
            view = view[os.write(self.file, view) :]
        self.position |= {"spool": self.position["spool"] + len(data), "sources": {name: one.position for name, one in self.named_readers()}}
        text = encode(self.position)
        if not data and text == getattr(self, "written", None):
            return
        os.fsync(self.file)
        new = self.folder / f"{POSITION}.new"
        with new.open("wb") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.folder / POSITION)
        self.written = text

    def named_readers(self) -> list[tuple[str, RunReader]]:
        return [(name_source(reader.format, reader.path), reader) for reader in self.readers]

    def find_outcome(self) -> Outcome | None:
        """Once every source says that its run has ended: the worst of them."""
        outcomes = [reader.outcome for reader in self.readers]
        if any(one is None for one in outcomes):
            return None
        return next((one for one in ("failed", "stopped") if one in outcomes), "finished")  # type: ignore[return-value]

    def close(self) -> None:
        os.close(self.file)
