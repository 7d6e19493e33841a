"""Statistics within the strata of groups: rows of one group that share a key. B rows, in groups of G neighbours."""

import torch
from torch import Tensor


def strata_of(keys: Tensor, group_size: int) -> Tensor:
    """(B,) keys -> (B,) int64: equal for rows of one group with the same key."""
    groups = torch.arange(len(keys), device=keys.device) // group_size
    found: Tensor = torch.unique(torch.stack([groups, keys.long()], 1), dim=0, return_inverse=True)[1]
    return found


def compute_stratum_sizes(strata: Tensor) -> Tensor:
    """(B,) -> (B,) int64: how many rows each row's stratum has."""
    return torch.bincount(strata)[strata]


def mean_within(values: Tensor, strata: Tensor) -> Tensor:
    """(B,), (B,) -> (B,): the mean of each row's stratum."""
    counts = torch.bincount(strata)
    sums = values.new_zeros(len(counts)).index_add_(0, strata, values)
    return (sums / counts.clamp(min=1))[strata]


def range_within(values: Tensor, strata: Tensor) -> tuple[Tensor, Tensor]:
    """(B,), (B,) -> (B,), (B,): the least and the greatest value of each row's stratum."""
    empty = values.new_zeros(int(strata.max()) + 1)
    low = empty.scatter_reduce(0, strata, values, "amin", include_self=False)
    high = empty.scatter_reduce(0, strata, values, "amax", include_self=False)
    return low[strata], high[strata]


def std_within(values: Tensor, strata: Tensor, ddof: int = 1) -> Tensor:
    """(B,), (B,) -> (B,): the deviation in each row's stratum; 0 for one of no more than ``ddof`` rows or of equal values.

    Equal values are recognised by their range, as in ``trainers.maths.advantages``.
    """
    low, high = range_within(values, strata)
    squares = mean_within((values - mean_within(values, strata)) ** 2, strata)
    count = compute_stratum_sizes(strata)
    deviation = (squares * count / (count - ddof).clamp(min=1)).sqrt()
    return deviation.masked_fill((low == high) | (count <= ddof), 0.0)


def z_score_within(values: Tensor, strata: Tensor, epsilon: float, ddof: int = 1) -> Tensor:
    """(B,), (B,) -> (B,): (value - mean) / (deviation + epsilon) in each row's stratum; exactly 0 where there is no deviation."""
    deviation = std_within(values, strata, ddof)
    scored = (values - mean_within(values, strata)) / (deviation + epsilon)
    return scored.masked_fill(deviation == 0, 0.0)
