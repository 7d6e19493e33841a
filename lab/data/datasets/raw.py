"""Rows of a file somebody brought, one by one with the line they stand on, whatever is wrong with them.

A small file can cost any amount of time and memory: only a child process with limits reads one (``file_reader``). What a row holds is counted
before it is decoded. This module runs there, without Django.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

KINDS = {"jsonl": "JSON lines", "json": "JSON", "csv": "CSV", "parquet": "Parquet"}
MOST_ROWS = 500_000
MOST_JSON = 30_000_000  # bytes of a file that is one JSON value: it is read whole
MOST_VALUES = 5_000_000  # of such a file
MOST_IN_ROW = 500_000  # values of a row
MOST_COLUMNS = 10_000  # of a table
LINE = 10_000_000  # bytes of a line of JSON; characters of a cell of a table
DEEPEST = 100  # lists and objects inside each other
DELIMITERS = b",;\t"
COMPRESSED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\xfd7zX": "xz", b"(\xb5/\xfd": "zstd", b"BZh": "bzip2"}


class UnreadableFile(ValueError):
    """The file as a whole; ``fix`` says what to do, ``status`` is the answer's."""

    status = 422

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


class RowError(ValueError):
    """Why a row cannot be used, in words for the person who made the file."""


Record = tuple[int, Any]  # line (of Parquet: row) from 1, and the row or the RowError it is


def detect_file_kind(path: Path) -> str:
    """What kind of file it is, by its content: a name proves nothing. Raises UnreadableFile."""
    with path.open("rb") as file:
        head = file.read(65536)
    if head.startswith(b"PAR1"):
        return "parquet"
    for magic, name in COMPRESSED.items():
        if head.startswith(magic):
            raise UnreadableFile(f"is compressed ({name})", "unpack it and upload the contents")
    if not head.strip():
        raise UnreadableFile("is empty", "choose a file with rows")
    if b"\0" in head:
        raise UnreadableFile("is a binary file", "upload .jsonl, .json, .csv or .parquet")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        return "json"
    if text.startswith(b"{"):
        return "jsonl" if is_object(text.split(b"\n", 1)[0], len(head) == 65536) else "json"
    if b"," not in head and b"\t" not in head and b";" not in head:
        raise UnreadableFile("is neither JSON nor a table", "upload .jsonl, .json, .csv or .parquet")
    return "csv"


def is_object(line: bytes, cut: bool) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return cut and b"\n" not in line and len(line) > 60_000  # a first line longer than what was looked at


def read_raw_records(path: Path, kind: str) -> Iterator[Record]:
    """Raises UnreadableFile, also after some rows."""
    for count, record in enumerate(records_of(path, kind)):
        if count >= MOST_ROWS:
            raise UnreadableFile(f"has more than {MOST_ROWS:,} rows", "split it")
        yield record


def records_of(path: Path, kind: str) -> Iterator[Record]:
    if kind == "parquet":
        from lab.data.datasets.raw_parquet import parquet_rows  # 0.3 s, and only Parquet needs it

        return parquet_rows(path)
    return {"jsonl": json_lines, "json": json_rows, "csv": csv_rows}[kind](path)


def json_lines(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE + 1):
            number += 1
            if len(line) > LINE:
                while line and not line.endswith(b"\n"):
                    line = file.readline(LINE)
                yield number, RowError(f"is longer than {LINE // 1_000_000} MB")
                continue
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield number, RowError(f"holds more than {MOST_IN_ROW:,} values") if values_in(text) > MOST_IN_ROW else decode_json_value(text)


def values_in(text: bytes) -> int:
    """At least as many as there are in the JSON: a value follows a comma or opens a list or an object."""
    return 1 + text.count(b",") + text.count(b"[") + text.count(b"{")


def depth_of(value: Any) -> int:
    """How many lists and objects are inside each other."""
    level, depth = [value], 0
    while level := [value for value in level if isinstance(value, list | dict)]:
        depth += 1
        level = list(chain.from_iterable(value.values() if isinstance(value, dict) else value for value in level))
    return depth


def decode_json_value(line: bytes) -> Any:
    """The value, or the RowError it is."""
    try:
        value = json.loads(line.decode())
    except UnicodeDecodeError as error:
        return RowError(f"is not UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}")
    except RecursionError:
        return RowError("is nested too deeply")
    except ValueError as error:
        return RowError(f"is not JSON: {error}")
    if line.count(b"[") + line.count(b"{") > DEEPEST and depth_of(value) > DEEPEST:
        return RowError("is nested too deeply")
    return value


def json_rows(path: Path) -> Iterator[Record]:
    """The rows of one JSON value: a list, or an object that holds one. Lines are numbers of the rows."""
    if path.stat().st_size > MOST_JSON:
        raise UnreadableFile(f"is one JSON value of more than {MOST_JSON // 1_000_000} MB", "write one row per line (.jsonl)")
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if values_in(text) > MOST_VALUES:
        raise UnreadableFile(f"holds more than {MOST_VALUES:,} values", "split it, or write one row per line (.jsonl)")
    value = decode_json_value(text)
    if isinstance(value, RowError):
        raise UnreadableFile(str(value), "check the file; with one JSON object per line (.jsonl) the invalid row can be named")
    if isinstance(value, dict):
        lists = [own for own in value.values() if isinstance(own, list)]
        value = lists[0] if len(lists) == 1 else [value]
    yield from enumerate(value if isinstance(value, list) else [value], 1)


def csv_rows(path: Path) -> Iterator[Record]:
    csv.field_size_limit(LINE)
    with path.open("rb") as raw:
        delimiter = delimiter_of(raw.read(65536))
        raw.seek(0)
        reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", errors="strict", newline=""), delimiter=delimiter, quotechar='"')
        try:
            header = [name.strip() for name in next(reader, [])]
            if len(header) > MOST_COLUMNS:
                raise UnreadableFile(f"has more than {MOST_COLUMNS:,} columns", "keep only the columns you need")
            for cells in reader:
                if not cells:
                    continue
                same = len(cells) == len(header)
                yield (
                    reader.line_num,
                    dict(zip(header, cells, strict=True))
                    if same
                    else RowError(f"has {len(cells)} cell{'' if len(cells) == 1 else 's'}, the header has {len(header)}"),
                )
        except UnicodeDecodeError as error:
            raise UnreadableFile(f"is not UTF-8 after line {reader.line_num}: {error.reason}", "save it as UTF-8") from None
        except csv.Error as error:
            raise UnreadableFile(f"is not a table after line {reader.line_num}: {error}", "check the quotes there") from None


def delimiter_of(head: bytes) -> str:
    """What stands most often in the header outside of quotes; a comma where nothing does."""
    header = next((line for line in head.splitlines() if line.strip()), b"")
    outside = b"".join(header.split(b'"')[::2])
    return chr(max(DELIMITERS, key=outside.count))
