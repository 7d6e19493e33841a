"""Means with 95 % intervals from Student's t distribution, p-values of a mean of zero, and Holm's correction of several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, stdev

CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeanEstimate:
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


def estimate_mean_interval(values: Sequence[float]) -> MeanEstimate | None:
    """None without values."""
    if not values:
        return None
    if len(values) == 1:
        return MeanEstimate(values[0], None, 1)
    return MeanEstimate(fmean(values), t_quantile(len(values) - 1) * stdev(values) / math.sqrt(len(values)), len(values))


@cache
def t_quantile(degrees_of_freedom: int, confidence: float = CONFIDENCE) -> float:
    """t with P(|T| <= t) = ``confidence`` under Student's t distribution."""
    from scipy.special import stdtrit  # type: ignore[import-untyped]  # here, because it is a tenth of what each process imports at its start

    return float(stdtrit(degrees_of_freedom, (1 + confidence) / 2))


def compute_zero_p(estimate: MeanEstimate) -> float | None:
    """Two-sided p-value of a true mean of 0 by Student's t; None for a single value."""
    from scipy.special import stdtr

    if estimate.half is None:
        return None
    if estimate.half == 0:
        return 1.0 if estimate.mean == 0 else 0.0
    standard_error = estimate.half / t_quantile(estimate.count - 1)
    return float(2 * stdtr(estimate.count - 1, -abs(estimate.mean) / standard_error))


def adjust_holm(values: Sequence[float]) -> list[float]:
    """p-values that hold for all comparisons together (Holm 1979, Scandinavian Journal of Statistics 6), in the order given."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    adjusted, highest = [0.0] * len(values), 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted
