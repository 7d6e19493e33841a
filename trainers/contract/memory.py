"""Memory of one attempt in its parts: what is estimated before it trains, as a range."""

from __future__ import annotations

from dataclasses import dataclass

TOTAL = "total"  # name of the last part, the sum


@dataclass(frozen=True)
class MemoryPart:
    """``low`` and ``high`` in bytes; ``formula`` in words."""

    name: str
    low: int
    high: int
    formula: str = ""
