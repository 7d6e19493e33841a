"""A version as a file in TRL's formats, written while it is read. JSON lines of the version's own shape are its frozen bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from django.http import FileResponse, Http404, HttpResponse, StreamingHttpResponse
from django.views.decorators.http import require_safe

from lab.audit.recording import record
from lab.browse.exports import Sink
from lab.datasets.models import Form, Version, VersionState
from lab.datasets.rows import canonical
from lab.runs.views.request import LabRequest

BATCH = 1000
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
}
Row = dict[str, Any]


def as_kto(row: Row) -> Iterator[Row]:
    if "label" in row:
        yield row
    else:
        weight = {"weight": row["weight"]} if "weight" in row else {}
        yield {"prompt": row["prompt"], "completion": row["chosen"], "label": True, **weight}
        yield {"prompt": row["prompt"], "completion": row["rejected"], "label": False, **weight}


def as_completion(row: Row) -> Iterator[Row]:
    if row.get("label", True):
        yield {"prompt": row["prompt"], "completion": row.get("completion") or row["chosen"]}


def as_it_is(row: Row) -> Iterator[Row]:
    yield row


SHAPERS: dict[str, Callable[[Row], Iterator[Row]]] = {
    "preference": as_it_is,
    "kto": as_kto,
    "completion": as_completion,
    "stepwise": as_it_is,
}


@require_safe
def export(request: LabRequest, version_id: int) -> HttpResponse | StreamingHttpResponse | FileResponse:
    """``?shape=preference|kto|completion|stepwise&format=jsonl|parquet&split=train|test&provenance=1``; what is not on offer is the version's own."""
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
        record("dataset.export", version, team=request.team, format=kind, shape=shape, split=split, provenance=told)
    name = f"{version.train_file.removesuffix('-train.jsonl') or f'version-{version.pk}'}-{split}-{shape}.{kind}"
    if kind == "jsonl" and shape == version.dataset.form and not told and version.train_file and version.path(split).is_file():
        return FileResponse(version.path(split).open("rb"), as_attachment=True, filename=version.path(split).name, content_type=TYPES[kind])
    batches = batched(rows_of(version, split, shape, told))
    pieces = jsonl(batches) if kind == "jsonl" else parquet(batches, shape, told)
    response = StreamingHttpResponse(pieces, content_type=TYPES[kind])
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def rows_of(version: Version, split: str, shape: str, told: bool) -> Iterator[Row]:
    """``told``: with a column ``provenance``, JSON text so that it has one type whatever is in it."""
    stored = version.rows.filter(split=split).order_by("place")
    for one in stored.iterator(chunk_size=BATCH):
        for row in SHAPERS[shape](one.row):
            yield {**row, "provenance": canonical(one.provenance)} if told else row


def batched(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def jsonl(batches: Iterator[list[Row]]) -> Iterator[bytes]:
    for batch in batches:
        yield "".join(canonical(row) + "\n" for row in batch).encode()


def parquet(batches: Iterator[list[Row]], shape: str, told: bool) -> Iterator[bytes]:
    import pyarrow as pa  # 0.3 s, and only exports need it
    import pyarrow.parquet as pq

    messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    texts = {"preference": ("prompt", "chosen", "rejected"), "kto": ("prompt", "completion"), "completion": ("prompt", "completion")}.get(shape, ())
    first = next(batches, [])
    numbers = [name for name in ("weight", "margin") if any(name in row for row in first)]
    fields = [*((name, messages) for name in texts), *((name, pa.float64()) for name in numbers)]
    fields += [("label", pa.bool_())] if shape == "kto" else []
    if shape == "stepwise":
        fields += [("prompt", pa.string()), ("completions", pa.list_(pa.string())), ("labels", pa.list_(pa.bool_()))]
    schema = pa.schema([*fields, *([("provenance", pa.string())] if told else [])])
    sink = Sink()
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        while first:
            writer.write_table(pa.Table.from_pylist(first, schema=schema))
            yield sink.taken()
            first = next(batches, [])
    yield sink.taken()
