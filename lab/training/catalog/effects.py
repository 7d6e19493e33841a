"""What the methods did when they were measured here: ``docs/effects.json``, written by the benchmark; systems that are no method
have theirs under their own id. What is not in it was not measured.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

FILE = Path(settings.BASE) / "docs" / "effects.json"
TONES = {"held": "good", "held, negligible": "warn", "not seen": "warn", "opposite, negligible": "warn", "opposite": "bad"}


@dataclass(frozen=True)
class MethodComparison:
    """One quantity with the method against without it, over seeds. ``direction``: where it should move. ``interval`` is of the difference, ``p`` and
    ``holm`` the p-value alone and among all comparisons. ``by_construction``: how the method pays for the quantity or selects by it; empty where it
    does neither. ``least``: the smallest difference worth having. Without a verdict it was not measured.
    """

    quantity: str
    direction: str = ""
    by_construction: str = ""
    least: str = ""
    least_because: str = ""
    measured: str = ""
    interval: str = ""
    p: str = ""
    holm: str = ""
    holds_among_all: bool = False
    verdict: str = ""

    @property
    def tone(self) -> str:
        return "" if self.by_construction else TONES.get(self.verdict, "")


@dataclass(frozen=True)
class MethodEffect:
    """Of a method against ``parent`` on ``problem``. ``state``: "fresh", "stale" (the code has changed since) or "not measured yet".
    ``changed``: what was changed in the case after a first look at its results. ``step_time_ratio`` is its time for a step relative to the parent's.
    """

    parent: str = ""
    claim: str = ""
    problem: str = ""
    changed: str = ""
    state: str = ""
    seconds: float = 0.0
    seeds: int = 0
    step_time_ratio: float | None = None
    comparisons: tuple[MethodComparison, ...] = ()

    @property
    def measured(self) -> list[MethodComparison]:
        return [comparison for comparison in self.comparisons if comparison.verdict]

    @property
    def stale(self) -> bool:
        return self.state == "stale"

    @property
    def headline(self) -> MethodComparison | None:
        """What the method is judged by in a list: the first measured quantity that it does not pay for, else the first."""
        return next((comparison for comparison in self.measured if not comparison.by_construction), next(iter(self.measured), None))


def effect_of(name: str) -> MethodEffect | None:
    return load_method_effects().get(name)


def load_method_effects() -> dict[str, MethodEffect]:
    """By method or system; read again when the file changes, empty while there is none."""
    try:
        return _read_effects_file(FILE, FILE.stat().st_mtime_ns)
    except OSError:
        return {}


@lru_cache(maxsize=2)
def _read_effects_file(path: Path, changed: int) -> dict[str, MethodEffect]:
    return {name: read_effect(entry) for name, entry in json.loads(path.read_bytes()).items()}


def read_effect(entry: dict[str, Any]) -> MethodEffect:
    """Keys that are not known here are left out."""
    known, parts = MethodEffect.__dataclass_fields__, MethodComparison.__dataclass_fields__
    comparisons = tuple(
        MethodComparison(**{key: value for key, value in comparison.items() if key in parts}) for comparison in entry.get("comparisons", ())
    )
    return MethodEffect(**{key: value for key, value in entry.items() if key in known} | {"comparisons": comparisons})
