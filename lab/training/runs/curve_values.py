"""The one number that stands for a run's curve: a function for each way to read it, and the words that name it wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lab.training.runs.metrics import Floats, Integers, Series

TAIL = 0.1  # of the steps: one step of a training batch is mostly noise
RECENT = 10  # steps, where runs are compared before they have ended
WORDS = {
    "step": "last step",
    "last": "last evaluation",
    "highest": "best evaluation",
    "tail": f"mean of the last {TAIL:.0%} of steps".replace("%", " %"),
    "recent": f"mean of the last {RECENT} steps",
    "median": "median of all steps",
    "wall": "from first start to end",
    "by_step": "last evaluation by its step",
}


@dataclass(frozen=True)
class CurveValue:
    """``step``: where it was measured, if at one step."""

    value: float
    step: int | None = None


def find_last_value(series: Series) -> CurveValue | None:
    """The newest finite point; None without one, as for all of these."""
    steps, values = _select_finite(series)
    return CurveValue(float(values[-1]), int(steps[-1])) if values.size else None


def find_highest_value(series: Series) -> CurveValue | None:
    """The first of the highest points."""
    steps, values = _select_finite(series)
    return CurveValue(float(values.max()), int(steps[int(values.argmax())])) if values.size else None


def find_value_by_step(steps: Integers, values: Floats, step: int) -> tuple[float, int] | None:
    """What was measured at the step or, if nothing was, last before it, with where that was; None where that is not finite."""
    index = int(np.searchsorted(steps, step, side="right")) - 1
    return (float(values[index]), int(steps[index])) if index >= 0 and np.isfinite(values[index]) else None


def compute_tail_mean(series: Series) -> CurveValue | None:
    """The mean over the last tenth of the steps; the newest point where none of them is finite."""
    steps, values = _select_finite(series)
    if not values.size:
        return None
    tail = values[steps > series.steps[-1] * (1 - TAIL)]
    return CurveValue(float(tail.mean())) if tail.size else find_last_value(series)


def compute_recent_mean(series: Series) -> CurveValue | None:
    """The mean over the newest RECENT steps that have a finite value."""
    _, values = _select_finite(series)
    return CurveValue(float(values[-RECENT:].mean())) if values.size else None


def cut_series(series: Series, step: int) -> Series:
    """The series as it stood at ``step``."""
    kept = int(np.searchsorted(series.steps, step, side="right"))
    return Series(series.name, series.steps[:kept], series.values[:kept])


def compute_median_value(series: Series) -> CurveValue | None:
    _, values = _select_finite(series)
    return CurveValue(float(np.median(values))) if values.size else None


def _select_finite(series: Series) -> tuple[Integers, Floats]:
    finite = np.isfinite(series.values)
    return series.steps[finite], series.values[finite]


def read_heldout_prompts(spec: Mapping[str, Any]) -> int | None:
    """Over how many prompts the run's evaluations are means; None where the spec does not say: a task of the team may have fewer than are wanted."""
    task = spec.get("task")
    if isinstance(task, Mapping) and task.get("file"):
        return None
    evaluation = spec.get("evaluation")
    prompts = evaluation.get("prompts") if isinstance(evaluation, Mapping) else None
    return prompts if isinstance(prompts, int) and not isinstance(prompts, bool) and prompts > 0 else None
