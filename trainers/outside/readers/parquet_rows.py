"""Rows of parquet files as JSON-like objects, with pyarrow, which is asked for only here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainers.outside.readers.base import SourceError
from trainers.outside.readers.step_files import NotComplete

ROWS = 64  # decoded at once


def import_parquet() -> Any:
    """Raises SourceError."""
    try:
        from pyarrow import parquet
    except ImportError:
        raise SourceError("these files are parquet, which needs the package pyarrow: pip install pyarrow") from None
    return parquet


def list_parquet_columns(path: Path) -> list[str]:
    """Raises SourceError without pyarrow, NotComplete."""
    parquet = import_parquet()
    try:
        with parquet.ParquetFile(path) as file:
            return [str(name) for name in file.schema_arrow.names]
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        raise NotComplete(str(error)) from None


def read_parquet_rows(path: Path, skip: int = 0) -> Iterator[dict[str, Any]]:
    """The rows after the first ``skip``. Raises SourceError without pyarrow, NotComplete for a file that is not whole."""
    parquet = import_parquet()
    try:
        with parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS):
                rows = batch.to_pylist()
                yield from rows[skip:] if skip < len(rows) else []
                skip = max(0, skip - len(rows))
    except (OSError, ValueError) as error:
        raise NotComplete(f"it is not a whole parquet file: {error}") from None


def drop_nulls(value: Any) -> Any:
    """Without the keys that are null: a table gives every message and every call of a tool all keys that any of them has."""
    if isinstance(value, dict):
        return {name: drop_nulls(one) for name, one in value.items() if one is not None}
    return [drop_nulls(one) for one in value] if isinstance(value, list) else value
