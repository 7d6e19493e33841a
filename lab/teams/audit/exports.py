"""The audit log as a file. An export is itself an act and is in the log, before what it wrote down."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from lab.lib.downloads import Lines, csv_safe
from lab.teams.audit.actions import ACTIONS
from lab.teams.audit.models import Entry

COLUMNS = ("id", "at", "who", "action", "words", "kind", "object_id", "label", "via", "token", "address", "agent", "details")


def record_of(entry: Entry) -> dict[str, Any]:
    """An entry as exports hold it; times are ISO 8601 in UTC."""
    return {
        "id": entry.pk,
        "at": entry.at.isoformat(),
        "who": entry.who,
        "action": entry.action,
        "words": ACTIONS.get(entry.action, entry.action),
        "kind": entry.kind,
        "object_id": entry.object_id,
        "label": entry.label,
        "via": entry.via,
        "token": entry.token,
        "address": entry.address or "",
        "agent": entry.agent,
        "details": entry.details,
    }


def encode_entries_jsonl(batches: Iterator[list[Entry]]) -> Iterator[bytes]:
    for batch in batches:
        yield "".join(json.dumps(record_of(entry), ensure_ascii=False) + "\n" for entry in batch).encode()


def as_csv(batches: Iterator[list[Entry]]) -> Iterator[bytes]:
    """Text that a spreadsheet would run is made text; the details are JSON in a cell."""
    writer = csv.writer(Lines())
    yield str(writer.writerow(COLUMNS)).encode()
    for batch in batches:
        yield "".join(writer.writerow([format_csv_cell(value) for value in record_of(entry).values()]) for entry in batch).encode()


def format_csv_cell(value: Any) -> Any:
    if isinstance(value, dict | list):
        return csv_safe(json.dumps(value, ensure_ascii=False))
    return csv_safe(value) if isinstance(value, str) else value


@dataclass(frozen=True)
class AuditFormat:
    label: str
    media_type: str
    write: Callable[[Iterator[list[Entry]]], Iterator[bytes]]


FORMATS = {
    "csv": AuditFormat("CSV", "text/csv; charset=utf-8", as_csv),
    "jsonl": AuditFormat("JSON lines", "application/x-ndjson", encode_entries_jsonl),
}
