"""The one number by which the trials of a sweep are ranked, at the end and at a rung."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from lab.training.runs import curve_values, metrics
from lab.training.runs.curve_values import CurveValue
from lab.training.runs.metrics import Series
from lab.training.runs.models import Run


@dataclass(frozen=True)
class SweepMetric:
    name: str
    metric: str
    label: str
    words: str
    read: Callable[[Series], CurveValue | None]


METRICS = {
    "heldout": SweepMetric("heldout", "heldout/reward", "Held-out reward", curve_values.WORDS["last"], curve_values.find_last_value),
    "reward": SweepMetric("reward", "reward", "Training reward", curve_values.WORDS["recent"], curve_values.compute_recent_mean),
}


def read_score_series(metric: SweepMetric, runs: Sequence[Run]) -> dict[UUID, Series]:
    """In two queries; runs without the metric are left out."""
    return metrics.read_sparkline_series([run.pk for run in runs], metric.metric, 0) if runs else {}


def compute_score(metric: SweepMetric, series: Series | None, step: int | None = None) -> float | None:
    """Of a whole run, or as it stood at ``step``; None where nothing finite was measured by then."""
    if series is None:
        return None
    found = metric.read(series if step is None else curve_values.cut_series(series, step))
    return found.value if found else None
