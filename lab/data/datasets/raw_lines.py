"""What a child process answers about a file (``file_reader`` asks): its kind, and its rows as lines of JSON. Runs without Django."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from lab.data.datasets.raw import DEEPEST, LINE, MOST_IN_ROW, RowError, UnreadableFile, depth_of, detect_file_kind, read_raw_records

HEAD_BYTES = 16_000_000  # of the first rows together


def kind_line(path: str) -> Iterator[Any]:
    """The kind of file, or ``{"unreadable": [message, fix]}``."""
    try:
        yield json.dumps(detect_file_kind(Path(path)))
    except UnreadableFile as error:
        yield {"unreadable": [error.message, error.fix]}


def record_lines(path: str, kind: str, most: int | None = None) -> Iterator[Any]:
    """``[line, row]`` or ``[line, null, what is wrong]`` for each row, of the first ``most`` while they are short; what ended it comes last."""
    count = written = 0
    try:
        for line, row in read_raw_records(Path(path), kind):
            text = record_line(line, row)
            yield text
            count, written = count + 1, written + len(text)
            if most is not None and (count >= most or written > HEAD_BYTES):
                return
    except UnreadableFile as error:
        yield {"unreadable": [error.message, error.fix]}


def record_line(line: int, row: Any) -> str:
    if isinstance(row, RowError):
        return json.dumps([line, None, str(row)])
    try:
        text = json.dumps([line, row], default=to_json_value)
    except (RecursionError, ValueError, TypeError) as error:
        return json.dumps([line, None, "is nested too deeply" if isinstance(error, RecursionError) else f"cannot be read: {error}"])
    if len(text) > 2 * LINE or text.count(",") > MOST_IN_ROW:
        return json.dumps([line, None, f"is longer than {LINE // 1_000_000} MB or holds more than {MOST_IN_ROW:,} values"])
    if text.count("[") + text.count("{") > DEEPEST and depth_of(row) > DEEPEST:
        return json.dumps([line, None, "is nested too deeply"])
    return text


def to_json_value(value: Any) -> Any:
    """What JSON has no word for: Parquet has types of its own."""
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"bytes": len(value)}
    return str(value)
