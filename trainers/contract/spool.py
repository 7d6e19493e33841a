"""The spool: ``events.jsonl`` of a run folder, appended by one trainer, tailed by any number of readers.

A line is an event and is whole once its newline is there; readers never look at an unfinished tail, and the next attempt cuts off what a
killed one left unfinished. The writer thread keeps the training step from waiting on the disk.
"""

import errno
import json
import logging
import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from trainers.contract.events import AnyEvent, AttemptStarted, Metrics

log = logging.getLogger(__name__)

SPOOL = "events.jsonl"
PENDING = 512  # events or batches waiting for the disk before a step has to wait
RETRY_SECONDS = 2.0
FULL = (errno.ENOSPC, errno.EDQUOT)  # a disk that somebody can clear: worth waiting for
UNSUPPORTED = (errno.EINVAL, errno.ENOTSUP)  # fsync on a file system that has none: nothing is lost by it
READ_BYTES = 1 << 18
BACK_BYTES = 1 << 16  # read at once from the end of a spool
UNCLEAN = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
UNSTORABLE = re.compile("[\0\ud800-\udfff]")

encoder = msgspec.json.Encoder()
decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


@dataclass(slots=True)
class Line:
    """One whole line of the spool: its event, or why it has none, and the offset (bytes) at which the next line starts."""

    event: AnyEvent | None
    end: int
    error: str = ""


def read_spool_lines(path: Path, offset: int, limit: int = 8 << 20, decoder: msgspec.json.Decoder[AnyEvent] = decoder) -> Iterator[Line]:
    """Yields the whole lines after ``offset``, at least one if there is one and then until ``limit`` bytes are read.

    ``decoder``: another one than that of ``AnyEvent`` gives structs of its own.
    """
    try:
        with path.open("rb", buffering=0) as file:
            stop, size = offset + limit, READ_BYTES
            while data := os.pread(file.fileno(), size, offset):
                start, end, view = 0, data.find(b"\n"), memoryview(data)
                if end < 0 and len(data) < size:  # the torn tail
                    return
                size = READ_BYTES if end >= 0 else 2 * size  # a line longer than what was read: once more with twice as much
                unclean = b"\\" in data and UNCLEAN.search(data) is not None  # one byte is found many times faster than six
                while end >= 0:
                    yield parse_spool_line(view[start:end], offset + end + 1, unclean, decoder)
                    start = end + 1
                    if offset + start >= stop:
                        return
                    end = data.find(b"\n", start)
                offset += start
    except FileNotFoundError:
        return


def parse_spool_line(line: bytes | memoryview, end: int, unclean: bool = False, decoder: msgspec.json.Decoder[AnyEvent] = decoder) -> Line:
    """``unclean``: an escaped NUL or surrogate may be in it."""
    try:
        event = decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return parse_unclean(bytes(line), end, str(error))
    return parse_unclean(bytes(line), end, "") if unclean else Line(event, end)


def parse_unclean(line: bytes, end: int, error: str) -> Line:
    """A line of a trainer that does not clean its text: NUL and lone surrogates become what the contract says, a bare NaN is a number."""
    try:
        data = json.loads(line.decode("utf-8", "surrogatepass"), strict=False)
        return Line(msgspec.convert(clean_event_data(data), AnyEvent, str_keys=True), end)
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        return Line(None, end, f"{error or problem}: {line[:80]!r}")


def clean_event_data(data: Any) -> Any:
    if isinstance(data, str):
        return UNSTORABLE.sub(lambda found: "\u2400" if found[0] == "\0" else "\ufffd", data)
    if isinstance(data, list):
        return [clean_event_data(item) for item in data]
    if isinstance(data, dict):
        return {clean_event_data(key): clean_event_data(value) for key, value in data.items()}
    return data


def last_attempt(path: Path) -> int:
    """The number of the newest attempt in the spool, 0 when there is none; reads only the end of the file."""
    event = next(read_events_backwards(path), None)
    return event.attempt if event is not None else 0


def last_reported_step(path: Path) -> int:
    """How many optimiser steps the newest attempt in the spool has reported, those it started after counted; reads only the end of the file."""
    for event in read_events_backwards(path):
        if isinstance(event, Metrics):
            return event.step
        if isinstance(event, AttemptStarted):
            return event.from_step
    return 0


def read_events_backwards(path: Path) -> Iterator[AnyEvent]:
    """The events of whole lines, newest first."""
    try:
        end = path.stat().st_size
    except FileNotFoundError:
        return
    window = BACK_BYTES
    with path.open("rb") as file:
        while end:
            start = max(0, end - window)
            file.seek(start)
            *lines, _ = pieces = file.read(end - start).split(b"\n")  # what follows the last newline is torn, or nothing
            for line in reversed(lines[1:] if start else lines):
                if (event := parse_spool_line(line, 0).event) is not None:
                    yield event
            if not start:
                return
            whole = len(lines) > 1
            end, window = (start + len(pieces[0]) + 1, BACK_BYTES) if whole else (end, 8 * window)


def cut_torn_tail(path: Path) -> int:
    """Drops what follows the last newline (no reader has seen it) and returns how many bytes that was."""
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        keep = size
        while keep:
            start = max(0, keep - (1 << 16))
            file.seek(start)
            found = file.read(keep - start).rfind(b"\n")
            if found >= 0:
                keep = start + found + 1
                break
            keep = start
        file.truncate(keep)
    return size - keep


Work = AnyEvent | Callable[[], list[AnyEvent]]


class SpoolError(OSError):
    """The disk does not keep what the spool is given, so that the run must end."""


class SpoolWriter:
    """Appends events in the order they were given. ``put`` takes an event, or a function that builds events on the writer's thread.

    With the disk full it waits. Any other failure to write ends it: every later ``put`` and ``sync`` raises SpoolError.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        cut_torn_tail(path)
        self.path = path
        self.file = self._open()
        self.pending: queue.Queue[Work | threading.Event | None] = queue.Queue(PENDING)
        self.failure: Exception | None = None
        self.broken: SpoolError | None = None
        self.thread = threading.Thread(target=self._drain, name="spool", daemon=True)
        self.thread.start()

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def lend(self) -> None:
        """Lets another process write the file until ``take_back``. Raises what ``sync`` raises."""
        self.sync()
        os.close(self.file)

    def take_back(self) -> None:
        """What the other process left half written is dropped."""
        cut_torn_tail(self.path)
        self.file = self._open()

    def put(self, work: Work) -> None:
        """Raises SpoolError when nothing can be written any more."""
        if self.broken:
            raise self.broken
        self.pending.put(work)

    def sync(self) -> None:
        """Returns when everything put so far is on the disk. Raises what building an event raised, once, and SpoolError."""
        done = threading.Event()
        self.pending.put(done)
        done.wait()
        failure, self.failure = self.failure, None
        if failure or self.broken:
            raise failure or self.broken  # type: ignore[misc]

    def close(self) -> None:
        """Raises what ``sync`` raises; the thread has ended and the file is closed all the same."""
        try:
            self.sync()
        finally:
            self.pending.put(None)
            self.thread.join()
            os.close(self.file)

    def __enter__(self) -> "SpoolWriter":
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()

    def _drain(self) -> None:
        while (work := self.pending.get()) is not None:
            if isinstance(work, threading.Event):
                self._store()
                work.set()
                continue
            if self.broken:
                continue
            try:
                events = work() if callable(work) else [work]
                data = b"".join(encoder.encode(event) + b"\n" for event in events)
            except Exception as error:  # a broken event must not end the thread that all later events need
                log.exception("an event could not be encoded")
                self.failure = error
                continue
            self._append(data)

    def _store(self) -> None:
        """Makes what was written durable. A second fsync says nothing of what the first one lost, so it is never tried again for an error."""
        try:
            if not self.broken:
                os.fsync(self.file)
        except OSError as error:
            if error.errno in UNSUPPORTED:
                log.warning("the spool lies on a file system without fsync (%s); a crash of the machine may lose its end", error)
            else:
                self.failure = SpoolError(error.errno, f"the spool cannot be stored: {error.strerror or error}")

    def _append(self, data: bytes) -> None:
        """Writes all of ``data`` or, with the disk full, waits until it can: an event is never dropped, a line never torn by us."""
        view, warned = memoryview(data), False
        while view:
            try:
                view = view[os.write(self.file, view) :]
            except OSError as error:
                if error.errno not in FULL:
                    log.error("the spool cannot be written (%s); the run ends", error)
                    self.broken = SpoolError(error.errno, f"the spool cannot be written: {error.strerror or error}")
                    return
                if not warned:
                    log.warning("the spool cannot be written (%s); training waits once %d batches are pending", error, PENDING)
                    warned = True
                time.sleep(RETRY_SECONDS)
