"""A grid of a published study, ready to be launched: a recipe, its factors, and what its cells are matched at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lab.training.ablations.budgets import Budget
from lab.training.ablations.factors import Factor


@dataclass(frozen=True)
class GridPreset:
    """``changes``: of the recipe, before any level. ``source``: where the study was published."""

    name: str
    title: str
    summary: str
    source: str
    recipe: str
    changes: tuple[tuple[str, Any], ...]
    factors: tuple[Factor, ...]
    budget: Budget
    seeds: int
