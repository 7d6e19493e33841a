"""Means with 95 % intervals from Student's t distribution, without scipy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over ``count`` values; ``half`` is half the width of its interval, None for a single value."""

    mean: float
    half: float | None
    count: int

    @property
    def low(self) -> float | None:
        return None if self.half is None else self.mean - self.half

    @property
    def high(self) -> float | None:
        return None if self.half is None else self.mean + self.half

    @property
    def sign(self) -> int:
        """1 or -1 when the whole interval lies on that side of zero, else 0."""
        if self.half is None or abs(self.mean) <= self.half:
            return 0
        return 1 if self.mean > 0 else -1


def estimate(values: Sequence[float]) -> Estimate | None:
    """None without values."""
    if not values:
        return None
    if len(values) == 1:
        return Estimate(values[0], None, 1)
    return Estimate(fmean(values), t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values)), len(values))


@cache
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """t with P(|T| <= t) = ``confidence`` for ``freedom`` degrees of freedom, by bisection."""
    low, high = 0.0, 1.0
    while inside(high, freedom) < confidence:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if inside(middle, freedom) < confidence else (low, middle)
    return high


def inside(t: float, freedom: int) -> float:
    """P(|T| <= t): the finite series for whole degrees of freedom (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    square, odd = math.cos(angle) ** 2, freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = term if freedom > 1 else 0.0
    for k in range(3 if odd else 2, freedom - 1, 2):
        term *= square * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
