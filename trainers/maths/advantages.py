"""Group-relative advantages. Rewards (B,) hold groups of G neighbours; a group whose rewards are all equal gets exact zeros."""

from typing import Literal

from torch import Tensor

EPSILON = 1e-4  # TRL's, added to the standard deviation


def group_mean(values: Tensor, group_size: int) -> Tensor:
    """(B,) -> (B,): the mean of each row's group."""
    return values.view(-1, group_size).mean(1).repeat_interleave(group_size)


def group_std(values: Tensor, group_size: int, ddof: int = 1) -> Tensor:
    """(B,) -> (B,): the standard deviation of each row's group; 0 for groups of no more than ``ddof`` members or of equal values.

    Equal values are recognised by their range: rounding would leave a tiny deviation that a division turns into advantages near 1.
    """
    groups = values.view(-1, group_size)
    if group_size <= ddof:
        return values.new_zeros(values.shape)
    spread = groups.std(1, correction=ddof).masked_fill(groups.amax(1) == groups.amin(1), 0.0)
    return spread.repeat_interleave(group_size)


def centre_by_group(rewards: Tensor, group_size: int) -> Tensor:
    """(B,) -> (B,): reward minus the group's mean (Dr. GRPO, arXiv 2503.20783)."""
    groups = rewards.view(-1, group_size)
    flat = (groups.amax(1) == groups.amin(1)).repeat_interleave(group_size)
    return (rewards - group_mean(rewards, group_size)).masked_fill(flat, 0.0)


def z_score(rewards: Tensor, group_size: int, epsilon: float = EPSILON, ddof: int = 1) -> Tensor:
    """(B,) -> (B,): (reward - mean) / (std + epsilon) within the group (DeepSeekMath, arXiv 2402.03300, section 4.1.2)."""
    return centre_by_group(rewards, group_size) / (group_std(rewards, group_size, ddof) + epsilon)


def compute_trl_advantages(rewards: Tensor, group_size: int, scale: Literal["group", "batch", "none"]) -> Tensor:
    """TRL's advantages for its ``scale_rewards`` settings: (B,) -> (B,)."""
    if scale == "group":
        return z_score(rewards, group_size)
    plain = centre_by_group(rewards, group_size)
    if scale == "none":
        return plain
    return plain / (rewards.std(correction=1) + EPSILON)
