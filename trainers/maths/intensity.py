"""How strongly a text shows a property, from comparisons with anchors of known intensity (after VALUEFLOW, arXiv 2602.03160; our reading).

    s^ = argmax_s sum_i [ o_i log sigmoid(s - s_i) + (1 - o_i) log sigmoid(s_i - s) ]   <=>   sum_i sigmoid(s^ - s_i) = sum_i o_i

o_i is 1 where the text shows more than anchor i, 0 where it shows less, 0.5 for a tie. The left side rises with s, so the root is found by bisection.
A text beyond all anchors has none: it is put ``MARGIN`` beyond the last one.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

MARGIN = 4.0  # beyond the outermost anchors; sigmoid(4) = 0.982
HALVINGS = 40  # of a range of some tens: far below what float64 tells apart from the root


def estimate_intensity(anchors: Tensor, outcomes: Tensor) -> Tensor:
    """(m,) intensities of the anchors, (B, m) outcomes in [0, 1] -> (B,) in [min - MARGIN, max + MARGIN]."""
    known, wanted = anchors.double(), outcomes.double().sum(1)
    low = torch.full_like(wanted, float(known.min()) - MARGIN)
    high = torch.full_like(wanted, float(known.max()) + MARGIN)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        is_above = torch.sigmoid(middle[:, None] - known).sum(1) >= wanted
        low, high = torch.where(is_above, low, middle), torch.where(is_above, middle, high)
    return ((low + high) / 2).to(anchors.dtype)


def compare_values(values: Sequence[float], anchors: Sequence[float]) -> Tensor:
    """(B,), (m,) amounts of a property -> (B, m) outcomes of a judge that counts: 1, 0, and 0.5 where both are equal."""
    own, others = torch.tensor(list(values))[:, None], torch.tensor(list(anchors))[None]
    return (own > others).float() + 0.5 * (own == others)


def compute_rank_correlation(one: Tensor, other: Tensor) -> float:
    """(n,) each -> Spearman's rank correlation, equal values sharing their mean rank; 0 where one of them does not vary."""
    ranks = [rank_evenly(values) for values in (one.double(), other.double())]
    centred = [rank - rank.mean() for rank in ranks]
    spread = float(centred[0].norm() * centred[1].norm()) if len(one) else 0.0
    return float((centred[0] * centred[1]).sum()) / spread if spread > 0 else 0.0


def rank_evenly(values: Tensor) -> Tensor:
    """(n,) -> (n,) ranks from 0; equal values have the mean of theirs."""
    below = (values[None] < values[:, None]).sum(1)
    equal = (values[None] == values[:, None]).sum(1)
    return below.double() + (equal.double() - 1) / 2
