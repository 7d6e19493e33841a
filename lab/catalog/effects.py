"""What the methods did when they were measured here: ``docs/effects.json``, written by the benchmark. A method that is not in it was not measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

FILE = Path(settings.BASE) / "docs" / "effects.json"
TONES = {"held": "good", "not seen": "warn", "opposite": "bad"}


@dataclass(frozen=True)
class Effect:
    """``measured`` is the ``quantity`` with the method against without it, on ``problem``, over ``seeds`` seeds; ``interval`` is of the difference.
    ``step_time_ratio`` is its time for a step relative to the parent's. Without a verdict only that time was measured.
    """

    parent: str = ""
    claim: str = ""
    quantity: str = ""
    problem: str = ""
    measured: str = ""
    interval: str = ""
    verdict: str = ""
    seconds: float = 0.0
    seeds: int = 0
    step_time_ratio: float | None = None

    @property
    def tone(self) -> str:
        return TONES.get(self.verdict, "")


def effect_of(name: str) -> Effect | None:
    return effects().get(name)


def effects() -> dict[str, Effect]:
    """By method; read again when the file changes, empty while there is none."""
    try:
        return _read(FILE, FILE.stat().st_mtime_ns)
    except OSError:
        return {}


@lru_cache(maxsize=2)
def _read(path: Path, changed: int) -> dict[str, Effect]:
    data: dict[str, Any] = json.loads(path.read_bytes())
    known = Effect.__dataclass_fields__
    return {name: Effect(**{key: value for key, value in entry.items() if key in known}) for name, entry in data.items()}
