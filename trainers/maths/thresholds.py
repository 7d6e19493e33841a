"""Comparing what was measured with what a person set: the float32 mean of nine right answers in ten is a hair below 0.9, and means 0.9."""

from typing import overload

from torch import Tensor

TOLERANCE = 1e-6  # relative to the bound, and at least this much


def compute_bound_tolerance(bound: float) -> float:
    return TOLERANCE * max(1.0, abs(bound))


@overload
def is_at_least(value: float, bound: float) -> bool: ...
@overload
def is_at_least(value: Tensor, bound: float) -> Tensor: ...
def is_at_least(value: Tensor | float, bound: float) -> Tensor | bool:
    """Whether ``value`` is ``bound`` or more; of a tensor, in its shape."""
    return value >= bound - compute_bound_tolerance(bound)


@overload
def is_above(value: float, bound: float) -> bool: ...
@overload
def is_above(value: Tensor, bound: float) -> Tensor: ...
def is_above(value: Tensor | float, bound: float) -> Tensor | bool:
    """Whether ``value`` is more than ``bound``, by more than rounding; of a tensor, in its shape."""
    return value > bound + compute_bound_tolerance(bound)
