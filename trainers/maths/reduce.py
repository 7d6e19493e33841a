"""Masked reductions."""

import torch
from torch import Tensor

ROW_MEANS = ("grpo", "sapo")  # TRL's losses that are a mean over completions of their mean over tokens


def masked_mean(values: Tensor, mask: Tensor, count: Tensor | float | None = None) -> Tensor:
    """Mean of ``values`` where ``mask`` (same shape) is 1; 0 where it is 1 nowhere. ``count``: divide by it instead of the mask's own sum."""
    total = (values * mask).sum()
    if count is None:
        return total / mask.sum().clamp(min=1.0)
    return total / torch.as_tensor(count, dtype=total.dtype, device=total.device).clamp(min=1e-6)  # 0 only where nothing is summed


def masked_row_mean(values: Tensor, mask: Tensor) -> Tensor:
    """(B, T) -> (B,): the mean of each row; 0 for a row without any."""
    return (values * mask).sum(1) / mask.sum(1).clamp(min=1.0)


def reduced_as(loss_type: str, values: Tensor, mask: Tensor, longest: int, count: Tensor | float | None = None) -> Tensor:
    """(B, T), (B, T) -> scalar: the reduction of TRL's GRPO loss of that type. ``longest``: completion tokens that are allowed; ``count``: see
    ``masked_mean``. Raises ValueError for a loss type that no base has.
    """
    if loss_type in ROW_MEANS:
        return masked_row_mean(values, mask).mean()
    if loss_type == "dr_grpo":
        return (values * mask).sum() / (len(values) * longest)
    if loss_type in ("dapo", "cispo"):
        return masked_mean(values, mask, count)
    raise ValueError(f"no reduction is known for the loss type {loss_type}")
