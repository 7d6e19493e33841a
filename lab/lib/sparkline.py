"""A small curve as points of SVG polylines, with what a screen reader says about it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab.lib.numbers import format_number

WIDTH, HEIGHT, MARGIN = 96.0, 24.0, 2.0


@dataclass(frozen=True)
class Sparkline:
    """``lines``: the ``points`` attribute of each unbroken piece, in a box of WIDTH x HEIGHT; ``end``: the last point."""

    lines: list[str]
    end: tuple[float, float]
    label: str


def build_sparkline(steps: Sequence[float], values: Sequence[float], bounds: tuple[float, float] | None = None) -> Sparkline | None:
    """The curve through ``values`` at ``steps`` (both N, steps ascending), broken where a value is not finite; None without two points.

    ``bounds`` are the values at the lower and the upper edge; without them the curve's own lowest and highest.
    """
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return None
    lowest, highest = min(finite), max(finite)
    low, high = bounds or (lowest, highest)
    across = (WIDTH - 2 * MARGIN) / ((steps[-1] - steps[0]) or 1)
    up = (HEIGHT - 2 * MARGIN) / ((high - low) or 1)
    pieces: list[list[tuple[float, float]]] = [[]]
    for step, value in zip(steps, values, strict=True):
        if math.isfinite(value):
            y = HEIGHT - MARGIN - (value - low) * up if high > low else HEIGHT / 2
            pieces[-1].append((MARGIN + (step - steps[0]) * across, y))
        elif pieces[-1]:
            pieces.append([])
    drawn = [piece for piece in pieces if piece]
    label = f"from {format_number(finite[0])} to {format_number(finite[-1])}, lowest {format_number(lowest)}, highest {format_number(highest)}"
    return Sparkline([" ".join(f"{x:.1f},{y:.1f}" for x, y in piece) for piece in drawn], drawn[-1][-1], label)
