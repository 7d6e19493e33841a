"""Lines as the pages draw them, for the exported file: when they are smoothed and how (static/charts/smoothing.js and series.js), and where they
break (static/compare/lines.js). tests/browser/test_reports.py holds both to the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

USUAL = 0.6
FEWEST = 10  # points below which nothing is called noisy
SHARE = 0.1  # of a line's variance
BREAK, BREAK_THINNED = 3.5, 12.0  # usual distances between two points that a line does not span


def is_noisy(values: Sequence[float | None]) -> bool:
    """Whether jumps from one point to the next make more than SHARE of the variance."""
    known = [value for value in values if value is not None]
    if len(known) < FEWEST:
        return False
    middle = sum(known) / len(known)
    variance = sum((value - middle) ** 2 for value in known) / len(known)
    jumps = sum((after - before) ** 2 for before, after in pairwise(known)) / (len(known) - 1) / 2
    return variance > 0 and jumps > SHARE * variance


def choose_smoothing(chosen: float | None, lines: Sequence[Sequence[float | None]]) -> float:
    """The weight for a chart with these lines; without a choice USUAL where one of them is noisy."""
    return chosen if chosen is not None else USUAL if any(is_noisy(line) for line in lines) else 0.0


def measure_spacing(steps: Sequence[int]) -> int:
    """The usual distance between two points."""
    gaps = sorted(after - before for before, after in pairwise(steps))
    return (gaps[len(gaps) // 2] or 1) if gaps else 1


def smooth_values(steps: Sequence[int], values: Sequence[float | None], weight: float) -> list[float | None]:
    """Exponential moving average without the pull towards zero at its start; over a gap the past fades as if the points had been there."""
    usual = measure_spacing(steps)
    total, count, last = 0.0, 0.0, 0
    smoothed: list[float | None] = []
    for step, value in zip(steps, values, strict=True):
        if value is None:
            smoothed.append(None)
            continue
        decay = math.pow(weight, (step - last) / usual) if count else 0.0
        total, count, last = total * decay + value, count * decay + 1, step
        smoothed.append(total / count)
    return smoothed


def split_line(steps: Sequence[int], xs: Sequence[float | None], ys: Sequence[float | None], thinned: bool) -> list[list[tuple[float, float]]]:
    """The stretches that are drawn without a break: where a point is missing, or steps are, a new one begins."""
    gap = measure_spacing(steps) * (BREAK_THINNED if thinned else BREAK)
    stretches: list[list[tuple[float, float]]] = [[]]
    for index, (step, x, y) in enumerate(zip(steps, xs, ys, strict=True)):
        if index and step - steps[index - 1] > gap:
            stretches.append([])
        if x is None:
            continue
        if y is None:
            stretches.append([])
        else:
            stretches[-1].append((x, y))
    return [stretch for stretch in stretches if stretch]
