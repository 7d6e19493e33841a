"""Masked reductions."""

from torch import Tensor


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean of ``values`` where ``mask`` (same shape) is 1; 0 where it is 1 nowhere."""
    return (values * mask).sum() / mask.sum().clamp(min=1.0)


def masked_row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """(B, T) -> (B,): the mean of each row; 0 for a row without any."""
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1.0)
