"""Windows and trends of a series, in the few forms the rules need."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lab.training.runs.metrics import Series

ENOUGH = 20  # points before a rule about a course says anything
BUCKETS = 20
SURE = 4.0  # |t| from which a trend or a difference counts: noise of 20 buckets passes it about once in 1,200 looks
INTERVAL = 3.0  # standard errors on each side of a mean: a threshold counts as passed when the whole interval lies beyond it


@dataclass(frozen=True)
class SeriesWindow:
    """The mean of some neighbouring points, with its standard error, and the steps they lie on."""

    mean: float
    error: float
    first: int
    last: int
    count: int

    @property
    def low(self) -> float:
        return self.mean - INTERVAL * self.error

    @property
    def high(self) -> float:
        return self.mean + INTERVAL * self.error


def window_of(series: Series, start: int, stop: int) -> SeriesWindow:
    """Over the points ``start`` to ``stop`` (places, not steps); at least one."""
    steps, values = series.steps[start:stop], series.values[start:stop]
    error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    return SeriesWindow(float(values.mean()), error, int(steps[0]), int(steps[-1]), len(values))


def compute_window_width(series: Series) -> int:
    """How many points "the start" and "now" mean: a tenth of the run, 10 to 50 of them, never more than there are."""
    return min(len(series), max(10, min(50, len(series) // 10)))


def compute_newest_window(series: Series) -> SeriesWindow:
    return window_of(series, len(series) - compute_window_width(series), len(series))


def compute_oldest_window(series: Series) -> SeriesWindow:
    return window_of(series, 0, compute_window_width(series))


def split_into_windows(series: Series) -> list[SeriesWindow]:
    """The whole series in neighbouring windows, the last of which is ``compute_newest_window``; points left over stand in no window."""
    size = compute_window_width(series)
    return [window_of(series, start, start + size) for start in range(len(series) % size, len(series), size)] if size else []


def has_significant_difference(first: SeriesWindow, second: SeriesWindow) -> bool:
    """Whether two means lie further apart than noise of their points explains (``SURE`` standard errors of the difference)."""
    return abs(first.mean - second.mean) > SURE * math.hypot(first.error, second.error)


def compute_window_around(series: Series, step: int) -> SeriesWindow:
    """The points nearest to a step, as many as ``compute_newest_window`` takes."""
    middle, half = int(np.searchsorted(series.steps, step)), compute_window_width(series) // 2
    start = max(0, min(middle - half, len(series) - 2 * half))
    return window_of(series, start, max(start + 1, start + 2 * half))


@dataclass(frozen=True)
class Trend:
    """A straight line through the means of up to 20 equal stretches: its value at the first and at the last step, and the t of its slope."""

    start: float
    end: float
    t: float

    @property
    def change(self) -> float:
        return self.end - self.start

    @property
    def relative(self) -> float:
        """The change as a share of the start; infinite from zero."""
        return self.change / abs(self.start) if self.start else math.copysign(math.inf, self.change) if self.change else 0.0


def fit_trend_line(series: Series) -> Trend:
    """Of at least three points. Stretches take away most of what makes neighbouring steps alike, which would make any drift look certain."""
    edges = np.linspace(0, len(series), min(BUCKETS, len(series)) + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(edges) if b > a]
    x = np.array([series.steps[part].mean() for part in parts])
    y = np.array([series.values[part].mean() for part in parts])
    apart = x - x.mean()
    slope = float(apart @ (y - y.mean()) / (apart @ apart))
    left = y - y.mean() - slope * apart
    error = math.sqrt(float(left @ left) / (len(x) - 2) / float(apart @ apart))
    first, last = (float(y.mean() + slope * (float(step) - x.mean())) for step in (series.steps[0], series.steps[-1]))
    if error <= 1e-12 * max(1.0, abs(slope)):
        return Trend(first, last, math.copysign(math.inf, slope) if abs(slope) > 1e-12 else 0.0)
    return Trend(first, last, slope / error)
