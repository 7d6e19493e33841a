"""The reward of a completion from what its reward functions said."""

from collections.abc import Mapping


def weighted_sum(rewards: Mapping[str, float | None], weights: Mapping[str, float]) -> float | None:
    """Sum of weight x score over the functions with an opinion; None when none has one."""
    known = [(name, value) for name, value in rewards.items() if value is not None]
    return sum(weights[name] * value for name, value in known) if known else None
