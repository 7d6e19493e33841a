"""A version as a file in TRL's formats, written while it is read. JSON lines of the version's own shape are its frozen bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from django.db.models import TextField
from django.db.models.functions import Cast
from django.http import Http404, StreamingHttpResponse
from django.views.decorators.http import require_safe

from lab.data.datasets.models import Form, Version, VersionState
from lab.data.datasets.rows import to_canonical_json
from lab.lib.costly import limit_costly_requests
from lab.lib.downloads import stream_attachment
from lab.rollouts.browse.exports import Sink
from lab.teams.accounts.requests import LabRequest
from lab.teams.audit.recording import record_audit_entry
from trainers.contract.spans import SIDES, span_column

BATCH = 1000
PIECE = 1 << 20  # bytes
FORMATS = {"jsonl": "JSON lines", "parquet": "Parquet"}
TYPES = {"jsonl": "application/x-ndjson", "parquet": "application/vnd.apache.parquet"}
SHAPES_OF = {  # what a form can be written as; its own first
    Form.PREFERENCE: {
        "preference": "Preference (prompt, chosen, rejected)",
        "kto": "KTO (prompt, completion, label)",
        "completion": "Prompt and completion: the chosen answers",
    },
    Form.KTO: {"kto": "KTO (prompt, completion, label)", "completion": "Prompt and completion: the good answers"},
    Form.COMPLETION: {"completion": "Prompt and completion"},
    Form.STEPWISE: {"stepwise": "Stepwise supervision (prompt, completions, labels)"},
    Form.PROMPT: {"prompt": "Prompts with a reference (prompt, reference)"},
}
TEXTS = {
    "preference": ("prompt", "chosen", "rejected"),
    "kto": ("prompt", "completion"),
    "completion": ("prompt", "completion"),
    "prompt": ("prompt",),
}
NUMBERS = {"preference": ("weight", "margin"), "kto": ("weight",)}
SPANS = {  # columns of marked spans, where any row has them
    "preference": (span_column("chosen"), span_column("rejected")),
    "kto": (span_column("completion"),),
    "completion": (span_column("completion"),),
}
OPTIONAL = ("weight", "margin", "tools", "tool_calls", "tool_call_id", "name", "solution", "data")  # columns, and keys of messages
Row = dict[str, Any]


def as_kto(row: Row) -> Iterator[Row]:
    if "label" in row:
        yield row
    else:
        weight = {"weight": row["weight"]} if "weight" in row else {}
        more = tools_of(row) | weight
        yield {"prompt": row["prompt"], "completion": row["chosen"], "label": True, **more, **spans_of(row, "chosen")}
        yield {"prompt": row["prompt"], "completion": row["rejected"], "label": False, **more, **spans_of(row, "rejected")}


def as_completion(row: Row) -> Iterator[Row]:
    if row.get("label", True):
        side = "completion" if row.get("completion") else "chosen"
        yield {"prompt": row["prompt"], "completion": row[side], **tools_of(row), **spans_of(row, side)}


def tools_of(row: Row) -> Row:
    return {"tools": row["tools"]} if row.get("tools") else {}


def spans_of(row: Row, side: str) -> Row:
    """The marked spans of one side, as those of a completion."""
    spans = row.get(span_column(side))
    return {span_column("completion"): spans} if spans else {}


def as_it_is(row: Row) -> Iterator[Row]:
    yield row


SHAPERS: dict[str, Callable[[Row], Iterator[Row]]] = {
    "preference": as_it_is,
    "kto": as_kto,
    "completion": as_completion,
    "stepwise": as_it_is,
    "prompt": as_it_is,
}


@require_safe
@limit_costly_requests()
def export_version(request: LabRequest, version_id: int) -> StreamingHttpResponse:
    """``?shape=preference|kto|completion|stepwise|prompt&format=jsonl|parquet&split=train|test&provenance=1``.

    What is not on offer is the version's own.
    """
    version = Version.objects.of(request.team).select_related("dataset__team").filter(pk=version_id).first()
    if version is None or version.state != VersionState.READY:
        raise Http404
    shapes = SHAPES_OF[Form(version.dataset.form)]
    shape = request.GET.get("shape", "")
    shape = shape if shape in shapes else next(iter(shapes))
    kind = request.GET.get("format", "")
    kind = kind if kind in FORMATS else "jsonl"
    split = "test" if request.GET.get("split") == "test" else "train"
    told = request.GET.get("provenance") == "1"
    if request.method == "GET":
        record_audit_entry("dataset.export", version, team=request.team, format=kind, shape=shape, split=split, provenance=told)
    name = f"{version.train_file.removesuffix('-train.jsonl') or f'version-{version.pk}'}-{split}-{shape}.{kind}"
    if kind == "jsonl" and shape == version.dataset.form and not told and version.train_file and version.path(split).is_file():
        return stream_attachment(request, read_file_pieces(version.path(split)), version.path(split).name, TYPES[kind], reads_database=False)
    batches = batch_rows(rows_of(version, split, shape, told))
    pieces = encode_json_lines(batches) if kind == "jsonl" else encode_parquet(batches, shape, list_optional_keys(version, split), told)
    return stream_attachment(request, pieces, name, TYPES[kind])


def read_file_pieces(path: Path) -> Iterator[bytes]:
    """The bytes of a file in pieces."""
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            yield piece


def rows_of(version: Version, split: str, shape: str, told: bool) -> Iterator[Row]:
    """``told``: with a column ``provenance``, JSON text so that it has one type whatever is in it."""
    stored = version.rows.filter(split=split).order_by("place")
    for stored_row in stored.iterator(chunk_size=BATCH):
        for row in SHAPERS[shape](stored_row.row):
            yield {**row, "provenance": to_canonical_json(stored_row.provenance)} if told else row


def batch_rows(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def encode_json_lines(batches: Iterator[list[Row]]) -> Iterator[bytes]:
    for batch in batches:
        yield "".join(to_canonical_json(row) + "\n" for row in batch).encode()


def list_optional_keys(version: Version, split: str) -> frozenset[str]:
    """Which of the OPTIONAL columns and keys of messages are in any row: a Parquet file has its columns before its first row."""
    rows = version.rows.filter(split=split).annotate(text=Cast("row", TextField()))
    found = frozenset(name for name in OPTIONAL if rows.filter(text__contains=f'"{name}": ').exists())
    spans = any(rows.filter(row__has_key=span_column(side)).exists() for side in SIDES)
    return found | {column for columns in SPANS.values() for column in columns} if spans else found


def encode_parquet(batches: Iterator[list[Row]], shape: str, keys: frozenset[str], told: bool) -> Iterator[bytes]:
    import pyarrow as pa  # 0.3 s, and only exports need it
    import pyarrow.parquet as pq

    schema = schema_of(shape, keys, told)
    sink = Sink()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_table(pa.Table.from_pylist([to_table_row(row) for row in batch], schema=schema))
            yield sink.taken()
    yield sink.taken()


def schema_of(shape: str, keys: frozenset[str], told: bool) -> Any:
    """Calls of tools as OpenAI's interface writes them, with arguments as JSON text; descriptions of tools and data as JSON text."""
    import pyarrow as pa

    text, number = pa.string(), pa.float64()
    call = pa.struct([("id", text), ("type", text), ("function", pa.struct([("name", text), ("arguments", text)]))])
    kinds = {"tool_calls": pa.list_(call), "tool_call_id": text, "name": text}
    message = pa.struct([("role", text), ("content", text), *((name, kind) for name, kind in kinds.items() if name in keys)])
    if shape == "stepwise":
        fields = [("prompt", text), ("completions", pa.list_(text)), ("labels", pa.list_(pa.bool_()))]
    else:
        fields = [(name, pa.list_(message)) for name in TEXTS[shape]]
    fields += [(name, number) for name in NUMBERS.get(shape, ()) if name in keys]
    fields += [("label", pa.bool_())] if shape == "kto" else []
    fields += [("reference", text), *((name, text) for name in ("solution", "data") if name in keys)] if shape == "prompt" else []
    span = pa.struct([("start", pa.int64()), ("end", pa.int64()), ("label", text), ("text", text)])
    fields += [(name, pa.list_(span)) for name in SPANS.get(shape, ()) if name in keys]
    fields += [("tools", text)] if "tools" in keys else []
    return pa.schema([*fields, *([("provenance", text)] if told else [])])


def to_table_row(row: Row) -> Row:
    """What has no fixed columns stands as JSON text."""
    table_row: Row = {name: to_canonical_json(value) if name in ("tools", "data") else value for name, value in row.items()}
    for name in ("prompt", "chosen", "rejected", "completion"):
        if isinstance(table_row.get(name), list):
            table_row[name] = [
                {**message, "tool_calls": [flat_call(call) for call in message["tool_calls"]]} if "tool_calls" in message else message
                for message in table_row[name]
            ]
    return table_row


def flat_call(call: Row) -> Row:
    arguments = call["function"]["arguments"]
    return {**call, "function": {**call["function"], "arguments": arguments if isinstance(arguments, str) else to_canonical_json(arguments)}}
