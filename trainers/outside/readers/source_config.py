"""Settings that a source tells of its run, without secrets and without what is no plain value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from trainers.outside.readers.chat_text import to_storable_text

SECRET = re.compile("token|secret|password|api_?key|credential", re.IGNORECASE)
MOST_SETTINGS = 300
LONGEST = 100


def pick_plain_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers, truth values and texts by name. Those with an underscore are the logger's own and left out, as is all that may be a secret."""
    kept: dict[str, Any] = {}
    for name, value in config.items():
        if name.startswith("_") or SECRET.search(name) or len(kept) >= MOST_SETTINGS:
            continue
        if isinstance(value, bool | int) or (isinstance(value, float) and abs(value) < float("inf")):
            kept[to_storable_text(name)[:LONGEST]] = value
        elif isinstance(value, str):
            kept[to_storable_text(name)[:LONGEST]] = to_storable_text(value)[:LONGEST]
    return kept
