"""Files of JSON lines that another program writes: read on from an offset, whole lines only, none longer than a limit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from trainers.outside.readers.base import LINE_BYTES, BrokenRow

EDGE_BYTES = 512  # of a file's beginning, and before the offset, by which a file that was written anew is known
SKIP_BYTES = 1 << 20
LOOKED_AT = 5  # lines at which a format is recognized


@dataclass(slots=True)
class RawLine:
    """``number`` counts from 1; ``end`` is the offset after it. ``text`` is None for a line longer than LINE_BYTES."""

    number: int
    end: int
    text: bytes | None


def read_raw_lines(path: Path, offset: int = 0, line: int = 0, final: bool = False) -> Iterator[RawLine]:
    """The lines after ``offset``, of which ``line`` stand before it. A last one without its newline is "not yet", unless ``final``."""
    with path.open("rb") as file:
        file.seek(offset)
        while text := file.readline(LINE_BYTES + 1):
            line += 1
            kept: bytes | None = text
            if not text.endswith(b"\n"):
                if len(text) > LINE_BYTES:
                    kept = None
                    while text and not text.endswith(b"\n"):
                        text = file.readline(SKIP_BYTES)
                if not text.endswith(b"\n") and not (final and kept is not None and is_json(kept)):
                    return
            if kept is None or kept.strip():
                yield RawLine(line, file.tell(), kept)


def is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    return True


def parse_json_row(line: RawLine) -> dict[str, Any]:
    """Bare NaN and Infinity, which Python's json writes, are numbers. Raises BrokenRow."""
    if line.text is None:
        raise BrokenRow(f"is longer than {LINE_BYTES >> 20} MiB")
    try:
        row = msgspec.json.decode(line.text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        try:
            row = json.loads(line.text)
        except (ValueError, RecursionError) as error:
            raise BrokenRow(f"is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise BrokenRow("is not a JSON object")
    return row


def fingerprint_file(path: Path, offset: int) -> str:
    """Of the bytes at both edges of what was read, so that a file that was written anew is told from one that grew."""
    with path.open("rb") as file:
        first = file.read(min(EDGE_BYTES, offset))
        file.seek(max(0, offset - EDGE_BYTES))
        last = file.read(min(EDGE_BYTES, offset))
    return blake2b(first + last, digest_size=8).hexdigest()


def is_row_with(path: Path, names: tuple[str, ...]) -> bool:
    """Whether the file's first line that is JSON, of the first few, is an object with all of these names."""
    try:
        for line in read_raw_lines(path, final=True):
            if line.number > LOOKED_AT:
                return False
            try:
                return all(name in parse_json_row(line) for name in names)
            except BrokenRow:
                continue
    except OSError:
        pass
    return False
