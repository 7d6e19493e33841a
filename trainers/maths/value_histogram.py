"""Values as histograms: HL-Gauss, regression by classification (arXiv 2403.03950, section 3 and appendix A).

Edges e_0 < ... < e_B of equal bins on [low, high] with centres c_b; F(e) = erf((e - y) / (sqrt(2) sigma)):

    p_b(y) = (F(e_b) - F(e_{b-1})) / (F(e_B) - F(e_0))      a normal distribution around the target y, cut to the range
    L = -sum_b p_b(y) log softmax(z)_b,     V = sum_b softmax(z)_b c_b,     sigma = ratio * width of a bin

Targets outside the range are taken to its ends. A target within some sigma of an end is read back a little inside: what lies beyond is cut off.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

ValueLoss = Literal["mse", "hl-gauss"]
BINS, RATIO = 51, 0.75  # of the range [v_min, v_max]; sigma over the width of a bin, the paper's choice
CALIBRATION_BINS = 10


@dataclass(frozen=True)
class ValueBins:
    """``count`` equal bins on [``low``, ``high``]; a target is spread with a standard deviation of ``ratio`` bins."""

    low: float
    high: float
    count: int = BINS
    ratio: float = RATIO

    @property
    def sigma(self) -> float:
        return self.ratio * (self.high - self.low) / self.count

    def list_edges(self, like: Tensor) -> Tensor:
        """(B + 1,)."""
        return torch.linspace(self.low, self.high, self.count + 1, dtype=like.dtype, device=like.device)

    def spread(self, targets: Tensor) -> Tensor:
        """(...) targets -> (..., B) probabilities of the bins."""
        edges = self.list_edges(targets)
        reached = torch.erf((edges - targets.clamp(self.low, self.high)[..., None]) / (math.sqrt(2) * self.sigma))
        return reached.diff() / (reached[..., -1:] - reached[..., :1])

    def read(self, logits: Tensor) -> Tensor:
        """(..., B) -> (...) expected values."""
        edges = self.list_edges(logits)
        return (logits.softmax(-1) * (edges[1:] + edges[:-1]) / 2).sum(-1)

    def compute_loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """(..., B), (...) -> (...) cross-entropies. Gradient of a row by its logits: softmax(z) - p(y)."""
        return -(self.spread(targets) * logits.log_softmax(-1)).sum(-1)


def choose_value_bins(loss: ValueLoss, low: float, high: float, count: int = BINS, ratio: float = RATIO) -> ValueBins | None:
    """None for a head that regresses."""
    return ValueBins(low, high, count, ratio) if loss == "hl-gauss" else None


def match_mean_histogram(logits: Tensor, targets: Tensor, floor: float = 1e-3) -> Tensor:
    """(n, B) logits, (n, B) probabilities -> (B,) what to add to a bias, so that the mean prediction comes near the mean of the targets.

    ``floor``: a bin's least mass on either side, so that an empty bin is not lowered without end.
    """
    return torch.log((targets.mean(0) + floor) / (logits.softmax(-1).mean(0) + floor))


def measure_calibration_error(values: Tensor, outcomes: Tensor, low: float, high: float) -> float:
    """(n,) each -> mean over ten equal bins of the predicted value, weighted by their sizes, of |mean value - mean outcome|; 0 without values."""
    if not len(values):
        return 0.0
    places = ((values - low) / (high - low) * CALIBRATION_BINS).long().clamp(0, CALIBRATION_BINS - 1)
    distance = torch.zeros(CALIBRATION_BINS, device=values.device).index_add_(0, places, (values - outcomes).float())
    return float(distance.abs().sum()) / len(values)
