"""How well a share of so many answers is known."""

from __future__ import annotations

import math

Z = 1.959963984540054  # of a 95 % interval


def compute_wilson_interval(value: float, n: float, z: float = Z) -> tuple[float, float]:
    """Wilson's score interval of a share ``value`` (0 to 1) of ``n`` answers, which need not be whole; 0 to 1 without answers (Wilson 1927)."""
    if n <= 0:
        return 0.0, 1.0
    square = z * z
    middle = (value + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(value * (1 - value) / n + square / (4 * n * n))
    return (0.0 if value == 0 else max(0.0, middle - half), 1.0 if value == 1 else min(1.0, middle + half))
