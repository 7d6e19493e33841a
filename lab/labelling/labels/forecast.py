"""How many more votes until an agreement is known well enough: Wilson's interval for a share, and its width solved for the number of votes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lab.lib.shares import Z, compute_wilson_interval


@dataclass(frozen=True)
class WilsonShare:
    """``hits`` of ``count`` with Wilson's 95 % interval; without any votes the interval is everything."""

    hits: int
    count: int

    @property
    def share(self) -> float | None:
        return self.hits / self.count if self.count else None

    @property
    def interval(self) -> tuple[float, float]:
        return compute_wilson_interval(self.hits / max(1, self.count), self.count)

    @property
    def words(self) -> str:
        """For people: 83 % (71 to 91, n 42); a dash without any votes."""
        if self.share is None:
            return "–"
        low, high = self.interval
        return f"{self.share:.0%} ({low * 100:.0f} to {high * 100:.0f}, n {self.count:,})".replace("%", " %")

    @property
    def width(self) -> float:
        low, high = self.interval
        return high - low


def votes_for(width: float, share: float, z: float = Z) -> int:
    """The least number of votes with which the interval of a ``share`` that stays as it is gets no wider than ``width`` (both within 0 to 1).

    The width is 2 z / (1 + z²/n) · sqrt(p (1 - p) / n + z² / 4 n²); squared and multiplied by n² that is a quadratic in n with one positive root:
    w² n² + (2 z² w² - 4 z² p (1 - p)) n + z⁴ (w² - 1) = 0.
    """
    square, wide = z * z, width * width
    linear = 2 * square * wide - 4 * square * share * (1 - share)
    rest = square * square * (wide - 1)
    root = (-linear + math.sqrt(linear * linear - 4 * wide * rest)) / (2 * wide)
    return max(1, math.ceil(root - 1e-9))


@dataclass(frozen=True)
class Forecast:
    """``votes``: how many more votes that take a side; ``labels``: how many labels those are, at the share of labels that took one so far."""

    agreement: WilsonShare
    width: float
    votes: int
    labels: int

    @property
    def reached(self) -> bool:
        return not self.votes


def forecast_needed_votes(agreement: WilsonShare, labels: int, width: float) -> Forecast:
    """``labels`` is how many labels gave the agreement's votes. Before the first vote a share of a half is assumed, which needs the most."""
    share = agreement.share if agreement.count else 0.5
    assert share is not None
    if agreement.count and agreement.width <= width:
        return Forecast(agreement, width, 0, 0)
    more = max(1, votes_for(width, share) - agreement.count)
    a_label = agreement.count / labels if labels and agreement.count else 1.0
    return Forecast(agreement, width, more, math.ceil(more / a_label))
