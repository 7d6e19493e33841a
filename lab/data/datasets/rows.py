"""A row as it will be in a file, what it says, and when two rows say the same."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.data.datasets.cleaning import LabelEvidence
from trainers.contract.spans import SIDES, span_column, swap_span_sides


@dataclass
class BuiltRow:
    """A row as it will be in a file, and where it came from."""

    row: dict[str, Any]
    digest: str
    prompt: int | None
    rollouts: list[int]
    item: int | None
    queue: int | None
    labellers: list[int]
    provenance: dict[str, Any]
    split: str = "train"
    suspect: dict[str, Any] = field(default_factory=dict)
    evidence: LabelEvidence | None = None


WEIGHT = "weight"  # column of preference and KTO rows: how much a row counts in the loss; 1 where it is missing
SPANS = tuple(map(span_column, SIDES))  # columns of marked spans
SAID = ("prompt", "chosen", "rejected", "completion", "label", "completions", "labels", "reference", "data", "tools")


def to_canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces; the text itself, not escapes of it."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def select_content_fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in SAID if name in row}


def hash_row_content(row: Mapping[str, Any]) -> str:
    return hashlib.sha256(to_canonical_json(select_content_fields(row)).encode()).hexdigest()


def make_opposite_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row that says the contrary."""
    if "label" in row:
        return {**row, "label": not row["label"]}
    return {**swap_span_sides(dict(row)), "chosen": row["rejected"], "rejected": row["chosen"]} if "chosen" in row else dict(row)


def format_tool_calls(message: Mapping[str, Any]) -> str:
    """The tools that a message calls, as one text; empty for most."""
    return to_canonical_json(message["tool_calls"]) if message.get("tool_calls") else ""


def build_prompt_key(row: Mapping[str, Any]) -> str:
    """What makes two prompts the same for split and limit: their words, whatever their case, white space and form of Unicode."""
    prompt = row["prompt"]
    texts = [prompt] if isinstance(prompt, str) else [f"{message['role']}\n{message['content']}{format_tool_calls(message)}" for message in prompt]
    return " ".join(unicodedata.normalize("NFKC", "\0".join(texts)).casefold().split())
