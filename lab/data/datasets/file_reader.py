"""Files that people bring, read in a child process with limits (``bounded_process``): whatever stands in one, nobody else has to wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from lab.data.datasets.raw import Broken, Record, Unreadable
from lab.lib import bounded_process
from lab.lib.bounded_process import BoundedError, Busy, Limits

PAGE = Limits(seconds=20, cpu_seconds=10, result=256 << 20)  # while somebody waits for a page
BUILD = Limits(seconds=300, cpu_seconds=120, result=1 << 30, patience=600)  # of a version, by a worker


class Later(Unreadable):
    """Nothing is wrong with the file: the lab reads too many at the moment."""

    status = 503


def detect_kind_in_child(path: Path) -> str:
    """What kind of file it is, by its content. Raises Unreadable."""
    return str(next(call_reader_process(path, "kind_line", PAGE)))


def read_records_in_child(path: Path, kind: str, most: int | None = None, limits: Limits = PAGE) -> Iterator[Record]:
    """Its rows with their lines, or the first ``most`` of them. Raises Unreadable, also after some rows."""
    for line, row, *reason in call_reader_process(path, "record_lines", limits, kind=kind, most=most):
        yield line, Broken(reason[0]) if reason else row


def call_reader_process(path: Path, name: str, limits: Limits, **arguments: Any) -> Iterator[Any]:
    """What ``raw_lines`` says. Files of one folder are one team's. Raises Unreadable."""
    try:
        found = bounded_process.call_in_child(f"lab.data.datasets.raw_lines:{name}", str(path.parent), limits, path=str(path), **arguments)
        first = next(found, None)
    except Busy as error:
        raise Later(error.message, error.fix) from None
    except BoundedError as error:
        raise Unreadable(error.message, error.fix) from None
    for one in chain([] if first is None else [first], found):
        if isinstance(one, dict):
            raise Unreadable(*one["unreadable"])
        yield one
