"""Where to roll back to in a text: to a peak of how sharply the policy looked, before what was wrong."""

from collections.abc import Sequence

import torch
from torch import Tensor


def measure_sharpness(weights: Tensor) -> float:
    """(n,) attention weights -> max a + 1 - H(a) / log n, from 1/n (uniform) to 2 (one token is all that is looked at)."""
    entropy = float(torch.special.entr(weights).sum())
    most = float(torch.tensor(float(len(weights))).log())
    return float(weights.max()) + 1 - (entropy / most if most else 0.0)


def find_peak(sharpness: Sequence[float], clean: Sequence[bool], tau: float, window: int) -> int | None:
    """How many of the K tokens to keep: up to and with the latest peak of the last ``window`` ones; None where there is none.

    ``sharpness`` (K,). ``clean`` (K + 1,): whether nothing is wrong after so many tokens; a peak after which something is, is none. A peak is sharper
    than its neighbours inside the window, and ``tau`` at least.
    """
    count = len(sharpness)
    first = max(0, count - window)
    for place in range(count - 1, first - 1, -1):
        beside = [sharpness[other] for other in (place - 1, place + 1) if first <= other < count]
        if clean[place + 1] and sharpness[place] >= tau and all(sharpness[place] > value for value in beside):
            return place + 1
    return None


def step_back(clean: Sequence[bool], tokens: int) -> int:
    """How many of the K tokens to keep: all but ``tokens``, or fewer where something is wrong there; none where something always is."""
    most = max(0, len(clean) - 1 - tokens)
    return next((kept for kept in range(most, 0, -1) if clean[kept]), 0)


def find_earlier_point(sharpness: Sequence[float], clean: Sequence[bool], kept: int, least: float, ratio: float) -> int:
    """The latest point before ``kept`` that is sharp by max(``least``, ``ratio`` times the sharpness there); ``kept`` where there is none."""
    if not kept:
        return 0
    asked = max(least, ratio * sharpness[kept - 1])
    return next((earlier for earlier in range(kept - 1, 0, -1) if clean[earlier] and sharpness[earlier - 1] >= asked), kept)
