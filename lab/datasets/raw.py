"""Rows of a file somebody brought, one by one with the line they stand on, whatever is wrong with them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KINDS = {"jsonl": "JSON lines", "json": "JSON", "csv": "CSV", "parquet": "Parquet"}
MOST_ROWS = 500_000
MOST_JSON = 30_000_000  # bytes of a file that is one JSON value: it is read whole
MOST_UNPACKED = 1_000_000_000  # bytes of a Parquet file's columns
MOST_CHUNK = 250_000_000  # of one of them in one row group: a short file can unpack to anything
CELL = 10_000_000
COMPRESSED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"\xfd7zX": "xz", b"(\xb5/\xfd": "zstd", b"BZh": "bzip2"}


class Unreadable(ValueError):
    """The file as a whole; ``fix`` says what to do."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


class Broken(ValueError):
    """Why a row cannot be used, in words for the person who made the file."""


Record = tuple[int, Any]  # line (of Parquet: row) from 1, and the row or the Broken it is


def sniff(path: Path) -> str:
    """What kind of file it is, by its content: a name proves nothing. Raises Unreadable."""
    with path.open("rb") as file:
        head = file.read(65536)
    if head.startswith(b"PAR1"):
        return "parquet"
    for magic, name in COMPRESSED.items():
        if head.startswith(magic):
            raise Unreadable(f"is compressed ({name})", "unpack it and upload what is inside")
    if not head.strip():
        raise Unreadable("is empty", "choose a file with rows")
    if b"\0" in head:
        raise Unreadable("is a binary file", "upload .jsonl, .json, .csv or .parquet")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"["):
        return "json"
    if text.startswith(b"{"):
        return "jsonl" if is_object(text.split(b"\n", 1)[0], len(head) == 65536) else "json"
    if b"," not in head and b"\t" not in head and b";" not in head:
        raise Unreadable("is neither JSON nor a table", "upload .jsonl, .json, .csv or .parquet")
    return "csv"


def is_object(line: bytes, cut: bool) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return cut and b"\n" not in line and len(line) > 60_000  # a first line longer than what was looked at


def records(path: Path, kind: str) -> Iterator[Record]:
    """Raises Unreadable, also after some rows."""
    found = {"jsonl": json_lines, "json": json_rows, "csv": csv_rows, "parquet": parquet_rows}[kind](path)
    for count, record in enumerate(found):
        if count >= MOST_ROWS:
            raise Unreadable(f"has more than {MOST_ROWS:,} rows", "split it")
        yield record


def json_lines(path: Path) -> Iterator[Record]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield number, decoded(text)


def decoded(line: bytes) -> Any:
    try:
        return json.loads(line.decode())
    except UnicodeDecodeError as error:
        return Broken(f"is not UTF-8: byte {error.start + 1} is 0x{line[error.start]:02x}")
    except RecursionError:
        return Broken("is nested too deeply")
    except ValueError as error:
        return Broken(f"is not JSON: {error}")


def json_rows(path: Path) -> Iterator[Record]:
    """The rows of one JSON value: a list, or an object that holds one. Lines are numbers of the rows."""
    if path.stat().st_size > MOST_JSON:
        raise Unreadable(f"is one JSON value of more than {MOST_JSON // 1_000_000} MB", "write one row a line (.jsonl)")
    value = decoded(path.read_bytes().removeprefix(b"\xef\xbb\xbf"))
    if isinstance(value, Broken):
        raise Unreadable(str(value), "check how it was written; one JSON object a line (.jsonl) shows which row is wrong")
    if isinstance(value, dict):
        lists = [own for own in value.values() if isinstance(own, list)]
        value = lists[0] if len(lists) == 1 else [value]
    yield from enumerate(value if isinstance(value, list) else [value], 1)


def csv_rows(path: Path) -> Iterator[Record]:
    csv.field_size_limit(CELL)
    with path.open("rb") as raw:
        text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="strict", newline="")
        try:
            dialect: Any = csv.Sniffer().sniff(text.read(8192), delimiters=",;\t")
        except csv.Error:
            dialect = csv.excel
        except UnicodeDecodeError:
            raise Unreadable("is not UTF-8", "save it as UTF-8") from None
        text.seek(0)
        dialect.doublequote = True
        reader = csv.reader(text, dialect)
        try:
            header = [name.strip() for name in next(reader, [])]
            for cells in reader:
                if not cells:
                    continue
                same = len(cells) == len(header)
                yield reader.line_num, dict(zip(header, cells, strict=True)) if same else Broken(f"has {len(cells)} cells, the header {len(header)}")
        except UnicodeDecodeError as error:
            raise Unreadable(f"is not UTF-8 after line {reader.line_num}: {error.reason}", "save it as UTF-8") from None
        except csv.Error as error:
            raise Unreadable(f"is not a table after line {reader.line_num}: {error}", "check the quotes there") from None


def parquet_rows(path: Path) -> Iterator[Record]:
    import pyarrow
    import pyarrow.parquet

    number = unpacked = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if largest_chunk(file.metadata) > MOST_CHUNK:
                raise Unreadable(f"has a column of more than {MOST_CHUNK // 1_000_000} MB in one row group", "write smaller row groups")
            for batch in file.iter_batches(batch_size=32):
                unpacked += batch.nbytes
                if unpacked > MOST_UNPACKED:
                    raise Unreadable(f"holds more than {MOST_UNPACKED // 1_000_000_000} GB unpacked", "split it")
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        raise Unreadable(f"is not a readable Parquet file: {str(error)[:200]}", "write it again") from None


def largest_chunk(metadata: Any) -> int:
    """Bytes, unpacked, of the largest column chunk."""
    groups = (metadata.row_group(place) for place in range(metadata.num_row_groups))
    return max((group.column(place).total_uncompressed_size for group in groups for place in range(group.num_columns)), default=0)
