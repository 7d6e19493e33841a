"""How many directions hidden states use: entropies of their spectrum. T tokens or N states, D hidden size, r = min(T, D) singular values.

Singular values are taken in float64 and directly: the eigenvalues of a float32 Gram matrix carry noise that the square root blows up.
"""

import torch
from torch import Tensor

SMALLEST = 1e-9  # of the largest singular value: below it is rounding


def exponential_entropy(spectrum: Tensor) -> Tensor:
    """(..., r) values >= 0 -> (...): exp of the entropy of their shares, between 1 and r; 0 for a spectrum of zeros."""
    total = spectrum.sum(-1, keepdim=True)
    shares = spectrum / total.clamp(min=torch.finfo(spectrum.dtype).tiny)
    return torch.exp(torch.special.entr(shares).sum(-1)) * (total[..., 0] > 0)


def singular_values(states: Tensor) -> Tensor:
    """(..., T, D) -> (..., r) float64; values that are rounding of the states themselves are 0."""
    wide = states.double()
    found = torch.linalg.svdvals(wide)
    scale = wide.abs().amax((-2, -1), keepdim=True)[..., 0]
    noise = SMALLEST * torch.maximum(found.amax(-1, keepdim=True), scale)
    return found.masked_fill(found <= noise, 0.0)


def effective_rank(states: Tensor, mask: Tensor) -> Tensor:
    """(B, T, D), (B, T) -> (B,): effective rank of each row's centred states: 0 for fewer than two of them, 1 where all are the same."""
    kept = mask.bool()
    count = kept.sum(1)
    wide = states.double() * kept[..., None]
    mean = wide.sum(1, keepdim=True) / count.clamp(min=1)[:, None, None]
    centred = (wide - mean) * kept[..., None]  # rows of zeros change no singular value
    flat = centred.abs().amax((1, 2)) <= SMALLEST * wide.abs().amax((1, 2))
    rank = exponential_entropy(singular_values(centred)).masked_fill(flat, 1.0)
    return rank.masked_fill(count < 2, 0.0)


def covariance_eigenvalues(states: Tensor) -> Tensor:
    """(N, D) -> (r,) float64, largest first: eigenvalues of the covariance of N states."""
    centred = states.double() - states.double().mean(0)
    return singular_values(centred) ** 2 / max(len(states), 1)


def power_law_slope(eigenvalues: Tensor, first: int, last: int) -> float:
    """alpha of lambda_i ~ i^-alpha: minus the least-squares slope of ln lambda_i on ln i, i from ``first`` to ``last``, counted from 1.

    Zeros are left out. A range of fewer than two values is widened to all of them; 0 where that is not enough either.
    """
    index = torch.arange(1, len(eigenvalues) + 1, dtype=torch.double)
    there = eigenvalues.cpu() > 0
    inside = there & (index >= first) & (index <= last)
    chosen = inside if int(inside.sum()) >= 2 else there
    if int(chosen.sum()) < 2:
        return 0.0
    x, y = index[chosen].log(), eigenvalues.cpu()[chosen].log()
    x = x - x.mean()
    return float(-(x * (y - y.mean())).sum() / (x * x).sum())
