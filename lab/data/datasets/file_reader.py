"""Files that people bring, read in a child process with limits (``bounded_process``): whatever stands in one, nobody else has to wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from lab.data.datasets.raw import Record, RowError, UnreadableFile
from lab.lib import bounded_process
from lab.lib.bounded_process import BoundedError, ProcessLimits, TooManyChildren

PAGE = ProcessLimits(seconds=20, cpu_seconds=10, result=256 << 20)  # while somebody waits for a page
BUILD = ProcessLimits(seconds=300, cpu_seconds=120, result=1 << 30, patience=600)  # of a version, by a worker


class ReaderBusy(UnreadableFile):
    """Nothing is wrong with the file: the lab reads too many at the moment."""

    status = 503


def detect_kind_in_child(path: Path) -> str:
    """What kind of file it is, by its content. Raises UnreadableFile."""
    return str(next(call_reader_process(path, "kind_line", PAGE)))


def read_records_in_child(path: Path, kind: str, most: int | None = None, limits: ProcessLimits = PAGE) -> Iterator[Record]:
    """Its rows with their lines, or the first ``most`` of them. Raises UnreadableFile, also after some rows."""
    for line, row, *reason in call_reader_process(path, "record_lines", limits, kind=kind, most=most):
        yield line, RowError(reason[0]) if reason else row


def call_reader_process(path: Path, name: str, limits: ProcessLimits, **arguments: Any) -> Iterator[Any]:
    """What ``raw_lines`` says. Files of one folder are one team's. Raises UnreadableFile."""
    try:
        records = bounded_process.call_in_child(f"lab.data.datasets.raw_lines:{name}", str(path.parent), limits, path=str(path), **arguments)
        first = next(records, None)
    except TooManyChildren as error:
        raise ReaderBusy(error.message, error.fix) from None
    except BoundedError as error:
        raise UnreadableFile(error.message, error.fix) from None
    for record in chain([] if first is None else [first], records):
        if isinstance(record, dict):
            raise UnreadableFile(*record["unreadable"])
        yield record
