"""Shares with Wilson's interval, and how many independent answers votes are worth when several concern the same item."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from lab.lib.shares import compute_wilson_interval


@dataclass(frozen=True)
class Proportion:
    """``value`` of ``n`` answers with a 95 % interval; without answers 0 to 1 and no value. ``effective_size``: as many independent answers."""

    value: float | None
    low: float
    high: float
    n: int
    effective_size: float = 0.0

    @property
    def off_half(self) -> bool:
        """The whole interval lies on one side of 50 %."""
        return self.low > 0.5 or self.high < 0.5


def estimate_share(hits: float, n: int, effective_size: float | None = None) -> Proportion:
    """``hits`` of ``n``, with the interval of ``effective_size`` independent answers (default: all)."""
    if n <= 0:
        return Proportion(None, 0.0, 1.0, 0)
    value, effective_size = hits / n, float(n) if effective_size is None else effective_size
    return Proportion(value, *compute_wilson_interval(value, effective_size), n, effective_size)


def clustered_share(hits: npt.NDArray[np.bool_], items: npt.NDArray[np.int64]) -> Proportion:
    """Share of votes (V,) that hit, where the votes of an item (V,) hang together."""
    return estimate_share(float(hits.sum()), len(hits), estimate_effective_sample_size(hits, items)) if len(hits) else estimate_share(0, 0)


def estimate_effective_sample_size(hits: npt.NDArray[np.bool_], items: npt.NDArray[np.int64]) -> float:
    """Independent answers that the votes are worth: their number divided by the design effect of their items (Kish 1965), never more than the votes.

    Where all votes say the same the effect cannot be seen, and the items are counted.
    """
    _, places, sizes = np.unique(items, return_inverse=True, return_counts=True)
    votes, number = len(hits), len(sizes)
    if number == votes:
        return float(votes)
    value = hits.mean()
    if number < 2 or value in (0.0, 1.0):
        return float(number)
    residual = np.bincount(places, weights=hits.astype(float)) - value * sizes
    between = number / (number - 1) * float((residual**2).sum()) / votes**2
    return float(min(votes, max(1.0, value * (1 - value) / between))) if between > 0 else float(votes)


def has_share_fallen(before: Proportion, after: Proportion, looks: int = 1) -> bool:
    """Whether the share went down by more than chance: Newcombe's interval of the difference (his method 10) lies below zero.

    ``looks``: how many such comparisons are made; each then has to stand with that much less doubt (Bonferroni).
    """
    if before.value is None or after.value is None:
        return False
    z = NormalDist().inv_cdf(1 - 0.025 / looks)
    low, high = compute_wilson_interval(before.value, before.effective_size, z)[0], compute_wilson_interval(after.value, after.effective_size, z)[1]
    return after.value - before.value + math.sqrt((high - after.value) ** 2 + (before.value - low) ** 2) < 0
