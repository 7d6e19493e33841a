"""What a child process makes of rows with a dataset tool (``tool_rows`` asks): a line of JSON for each row. Runs without Django."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from trainers.contract.dataset_tools.application import apply_tool, load_tool


def outcome_lines(data: bytes, tool: str, config: dict[str, Any], form: Any, seed: int) -> Iterator[dict[str, Any]]:
    """``data``: rows as lines of JSON. ``made``: (row, note) of each row that is made; ``dropped``: why none is."""
    rows = map(json.loads, data.splitlines())
    for outcome in apply_tool(load_tool(tool, config), rows, form, seed):
        yield {"made": [[made.row, made.note] for made in outcome.made], "dropped": outcome.dropped}
