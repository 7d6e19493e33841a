"""How the built-in policy learned each world when it was measured here: ``docs/worlds.json``, written by the benchmark."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from lab.lib.sparkline import Sparkline, build_sparkline

FILE = Path(settings.BASE) / "docs" / "worlds.json"


@dataclass(frozen=True)
class CurvePoint:
    """Held-out accuracy after ``step`` training steps, over the seeds."""

    step: int
    mean: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class WorldCurve:
    """``heldout``: episodes of one measurement; ``rises``: whether the last point is above the first by more than the seeds leave to chance."""

    difficulty: str
    seeds: int
    heldout: int
    rises: bool
    points: tuple[CurvePoint, ...]

    @property
    def line(self) -> Sparkline | None:
        return build_sparkline([point.step for point in self.points], [point.mean for point in self.points], bounds=(0.0, 1.0))


def load_world_curve(name: str) -> WorldCurve | None:
    """None for a world that was not measured, those of installed packages among them."""
    try:
        kept = read_curves_file(FILE, FILE.stat().st_mtime_ns).get(name)
    except FileNotFoundError:
        return None
    if kept is None:
        return None
    points = [build_point(list(of_step)) for of_step in zip(*kept["curves"], strict=True)]
    return WorldCurve(kept["difficulty"], len(kept["curves"]), kept["heldout"], kept["rises"], tuple(points))


def build_point(of_step: list[list[float]]) -> CurvePoint:
    values = [value for _, value in of_step]
    return CurvePoint(int(of_step[0][0]), statistics.mean(values), min(values), max(values))


@lru_cache(maxsize=1)
def read_curves_file(path: Path, changed: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found
