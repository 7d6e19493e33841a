"""Rows of a Parquet file: what they will hold is counted in the file's own figures, and again in Arrow's arrays, before Python makes a value of any.

A list of 60 million nulls takes a thousand bytes, and a dictionary one copy of a text that a million rows repeat.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from lab.data.datasets.raw import MOST_COLUMNS, MOST_IN_ROW, MOST_ROWS, Record, UnreadableFile

MOST_UNPACKED = 1_000_000_000  # bytes of a file's columns
MOST_CHUNK = 250_000_000  # of one of them in one row group
MOST_IN_COLUMN = 10_000_000  # values of a column in one row group
ROWS = 32  # decoded at once


def parquet_rows(path: Path) -> Iterator[Record]:
    """Raises UnreadableFile."""
    number = unpacked = 0
    try:
        with pyarrow.parquet.ParquetFile(path, pre_buffer=False) as file:
            check_metadata(file.metadata)
            for batch in file.iter_batches(batch_size=ROWS, use_threads=False):
                unpacked += check_batch(batch)
                if unpacked > MOST_UNPACKED:
                    raise UnreadableFile(f"holds more than {MOST_UNPACKED // 1_000_000_000} GB unpacked", "split it")
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except MemoryError:
        raise
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        raise UnreadableFile(f"is not a readable Parquet file: {str(error)[:200]}", "write it again") from None


def check_metadata(metadata: Any) -> None:
    """What the file says of itself, before anything is unpacked. Raises UnreadableFile."""
    if metadata.num_rows > MOST_ROWS:
        raise UnreadableFile(f"has more than {MOST_ROWS:,} rows", "split it")
    if metadata.num_columns > MOST_COLUMNS:
        raise UnreadableFile(f"has more than {MOST_COLUMNS:,} columns", "keep only the columns you need")
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        for column in (group.column(position) for position in range(group.num_columns)):
            if column.total_uncompressed_size > MOST_CHUNK:
                raise UnreadableFile(f"has a column of more than {MOST_CHUNK // 1_000_000} MB in one row group", "write smaller row groups")
            if column.num_values > MOST_IN_COLUMN:
                raise UnreadableFile(
                    f"has a column of more than {MOST_IN_COLUMN:,} values in one row group", "write smaller row groups, or shorter lists"
                )


def check_batch(batch: Any) -> int:
    """The bytes its values will take as they are, dictionaries written out. Raises UnreadableFile."""
    measured = [measure_array(column) for column in batch.columns]
    if sum(values for values, _ in measured) > MOST_IN_ROW:
        raise UnreadableFile(f"has {len(batch)} rows with more than {MOST_IN_ROW:,} values together", "write shorter lists")
    size = sum(taken for _, taken in measured)
    if size > MOST_CHUNK:
        raise UnreadableFile(f"has {len(batch)} rows of more than {MOST_CHUNK // 1_000_000} MB together", "shorten them")
    return size


def measure_array(array: Any) -> tuple[int, int]:
    """(values, bytes) of an Arrow array with everything inside it."""
    kind = array.type
    if pyarrow.types.is_dictionary(kind):
        return len(array), written_out(array)
    if not pyarrow.types.is_nested(kind):
        return len(array), array.nbytes
    inner = array.flatten()  # of a struct the arrays of its fields
    measured = [measure_array(child) for child in (inner if isinstance(inner, list) else [inner])]
    return len(array) + sum(values for values, _ in measured), sum(taken for _, taken in measured)


def written_out(array: Any) -> int:
    """Bytes of a dictionary array with every index replaced by its value."""
    values = array.dictionary
    if pyarrow.types.is_binary(values.type) or pyarrow.types.is_string(values.type) or pyarrow.types.is_large_string(values.type):
        return int(pyarrow.compute.sum(pyarrow.compute.binary_length(values).take(array.indices)).as_py() or 0)
    return len(array) * max(8, int(values.nbytes))
