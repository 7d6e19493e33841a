"""Successive halving (arXiv 1810.05934): trials are compared at a few steps, and only the best third goes on from each.

Stopping is exact here, so a trial that is not among the best is paused and not pruned: when more have arrived it may be among them, and goes on.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
FACTOR = 3
FIRST = 0.2  # of the steps: earlier, rewards of reinforcement learning say little
LEAST_STEPS = 10


def list_rungs(steps: int) -> list[int]:
    """The steps at which trials are compared, before the last."""
    rungs, rung = [], math.ceil(steps * FIRST)
    while rung < steps:
        rungs.append(rung)
        rung *= FACTOR
    return rungs


def select_promoted(scores: Mapping[K, float | None], maximize: bool, *, nobody_else_comes: bool = False) -> set[K]:
    """Who of those that have arrived at a rung goes on: the best third; the best one at least, once nobody else comes. Nothing measured is worst."""
    measured = {key: score if maximize else -score for key, score in scores.items() if score is not None}
    count = max(len(scores) // FACTOR, 1 if nobody_else_comes else 0)
    return set(sorted(measured, key=lambda key: -measured[key])[:count])  # of equals, who came first
