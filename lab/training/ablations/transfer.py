"""How much of a gain carries over from where a policy was trained to where it was not (after arXiv 2509.23657; the ratio is our reading).

D_l is the gain in l: after training minus before it. With s the level that was trained, X is the mean of D_l over all other l, and the transfer
ratio is T = X / D_s, which is defined where D_s > 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from lab.training.ablations.intervals import MeanEstimate, estimate_mean_interval, t_quantile

Seeds = Mapping[int, float]  # seed -> gain


@dataclass(frozen=True)
class TransferRatio:
    """``own``: D_s; ``others``: X. ``half`` is half the width of T's 95 % interval, None where there is none; ``ratio`` is None where D_s ≤ 0."""

    own: MeanEstimate
    others: MeanEstimate
    ratio: float | None
    half: float | None

    @property
    def count(self) -> int:
        """Seeds that have all gains."""
        return self.own.count


def estimate_transfer_ratio(gains: Mapping[str, Seeds], source: str) -> TransferRatio | None:
    """``gains``: level → seed → gain of the runs trained on ``source``. None without a seed that has all of them.

    The ratio is that of the means over seeds; its interval is the jackknife's over seeds with Student's t, since a ratio of small gains
    is far from normal and one seed's own ratio may divide by almost nothing.
    """
    seeds = sorted(set.intersection(*(set(found) for found in gains.values()))) if source in gains and len(gains) > 1 else []
    own = [gains[source][seed] for seed in seeds]
    others = [fmean(found[seed] for level, found in gains.items() if level != source) for seed in seeds]
    mean_own, mean_others = estimate_mean_interval(own), estimate_mean_interval(others)
    if mean_own is None or mean_others is None:
        return None
    if mean_own.mean <= 0:
        return TransferRatio(mean_own, mean_others, None, None)
    return TransferRatio(mean_own, mean_others, mean_others.mean / mean_own.mean, estimate_ratio_half(others, own))


def estimate_ratio_half(tops: Sequence[float], bottoms: Sequence[float]) -> float | None:
    """Half the width of the jackknife interval of mean(tops) / mean(bottoms); None for one pair, and where a mean of bottoms is not positive."""
    count = len(tops)
    if count < 2:
        return None
    sums = sum(tops), sum(bottoms)
    without = [(sums[0] - top, sums[1] - bottom) for top, bottom in zip(tops, bottoms, strict=True)]
    if any(bottom <= 0 for _, bottom in without):
        return None
    ratios = [top / bottom for top, bottom in without]
    middle = fmean(ratios)
    variance = (count - 1) / count * sum((ratio - middle) ** 2 for ratio in ratios)
    return t_quantile(count - 1) * math.sqrt(variance)
