"""The selection as a file, written while it is read: JSON lines, CSV, Parquet. Each format turns batches of records into pieces of bytes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lab.lib.downloads import Lines, csv_safe
from lab.rollouts.browse.records import NAMES, TOKENS, WHOLE

Batches = Iterator[list[dict[str, Any]]]
MOST = 200_000  # rollouts in a file
MOST_WITH_TOKENS = 20_000
NAMED_NUMBERS = ("rewards", "contributions", "shaped")  # name -> number


@dataclass(frozen=True)
class Format:
    name: str
    label: str
    media_type: str
    write: Callable[[Batches, Sequence[str], bool], Iterator[bytes]]  # (batches, reward functions, with tokens)
    tokens: bool = True  # whether it can hold the token arrays


def write_jsonl_batches(batches: Batches, components: Sequence[str], tokens: bool) -> Iterator[bytes]:
    for batch in batches:
        yield "".join(
            json.dumps(record, ensure_ascii=False, allow_nan=False, default=str) + "\n" for record in map(sanitize_record_numbers, batch)
        ).encode()


def sanitize_record_numbers(record: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN: a number that is none is null."""
    return {name: replace_nonfinite_value(value) for name, value in record.items()}


def replace_nonfinite_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: replace_nonfinite_value(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and value - value != 0 else value


def as_csv(batches: Batches, components: Sequence[str], tokens: bool) -> Iterator[bytes]:
    """Lists and mappings as JSON in a cell, and a column of its own for each reward function. Text that a spreadsheet would run is made text."""
    writer = csv.writer(Lines())
    named = [f"rewards.{name}" for name in components]
    yield writer.writerow([*NAMES, *map(csv_safe, named)]).encode()
    for batch in batches:
        lines = []
        for record in map(sanitize_record_numbers, batch):
            own = [format_csv_cell(record["rewards"].get(name)) for name in components]
            lines.append(writer.writerow([*(format_csv_cell(value) for value in record.values()), *own]))
        yield "".join(lines).encode()


def format_csv_cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return csv_safe(json.dumps(value, ensure_ascii=False))
    return csv_safe(value) if isinstance(value, str) else value


class Sink(io.RawIOBase):
    """What a Parquet writer has written since it was last asked."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def write(self, data: Any) -> int:
        piece = bytes(data)
        self.pieces.append(piece)
        self.at += len(piece)
        return len(piece)

    def taken(self) -> bytes:
        data, self.pieces = b"".join(self.pieces), []
        return data


def write_parquet_batches(batches: Batches, components: Sequence[str], tokens: bool) -> Iterator[bytes]:
    """Typed: mappings are lists of (name, value), because every run brings reward functions of its own. A batch is a row group."""
    import pyarrow as pa  # 0.3 s, and only exports need it
    import pyarrow.parquet as pq

    schema = schema_of(pa, tokens)
    sink = Sink()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_pylist([type_record(record) for record in batch], schema=schema))
            yield sink.taken()
    yield sink.taken()


def type_record(record: dict[str, Any]) -> dict[str, Any]:
    """Nodes are JSON, because each world has facts of its own, and so are labels on them."""
    texts = {name: json.dumps(record[name], ensure_ascii=False) for name in ("nodes", "turn_labels")}
    return {**record, **{name: to_name_value_pairs(record[name]) for name in NAMED_NUMBERS}, **texts}


def to_name_value_pairs(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "value": value if isinstance(value, int | float) else None} for name, value in values.items()]


def schema_of(pa: Any, tokens: bool) -> Any:
    numbers = pa.list_(pa.struct([("name", pa.string()), ("value", pa.float64())]))
    fields = [
        ("id", pa.int64()),
        ("run", pa.int32()),
        ("run_name", pa.string()),
        ("phase", pa.string()),
        *((name, pa.int64()) for name in ("step", "group", "sample", "attempt")),
        ("prompt", pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))),
        ("reference", pa.string()),
        ("completion", pa.large_string()),
        ("turns", pa.list_(pa.struct([("role", pa.string()), ("start", pa.int64()), ("end", pa.int64())]))),
        ("nodes", pa.string()),
        ("turn_labels", pa.string()),
        ("reward", pa.float64()),
        ("rewards", numbers),
        ("advantage", pa.float64()),
        ("contributions", numbers),
        ("shaped", numbers),
        ("length", pa.int64()),
        *((name, pa.float64()) for name in ("mean_entropy", "max_entropy")),
        ("finish_reason", pa.string()),
        ("filtered", pa.string()),
        ("superseded", pa.bool_()),
        ("tags", pa.list_(pa.string())),
        ("rating", pa.float64()),
        *((name, pa.int64()) for name in ("ratings", "comments")),
        ("created_at", pa.string()),
    ]
    if tokens:
        fields += [(name, pa.list_(pa.int32() if name in WHOLE else pa.float32())) for name in TOKENS]
        fields += [("alternative_ids", pa.list_(pa.list_(pa.int32()))), ("alternative_logprobs", pa.list_(pa.list_(pa.float32())))]
        fields += [("alternative_texts", pa.list_(pa.struct([("id", pa.int64()), ("text", pa.string())])))]
    return pa.schema(fields)


FORMATS = {
    one.name: one
    for one in (
        Format("jsonl", "JSON lines", "application/x-ndjson", write_jsonl_batches),
        Format("parquet", "Parquet", "application/vnd.apache.parquet", write_parquet_batches),
        Format("csv", "CSV", "text/csv; charset=utf-8", as_csv, tokens=False),
    )
}
