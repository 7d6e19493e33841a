"""The points of a few metrics of several runs, as JSON for the page's charts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import numpy as np

from lab.runs import metrics
from lab.runs.metrics import Series
from lab.runs.models import Run

NAMES = 8  # metrics in one answer
POINTS = 12_000  # of one metric over all runs
AXES = ("step", "time", "tokens")


def answer(runs: Sequence[Run], names: Sequence[str], axis: str, aligned: bool) -> dict[str, Any]:
    """``{metric: [{run, steps, x, values, thinned, nonfinite}, …]}``, runs without the metric left out.

    ``x`` is null on the step axis, else minutes since the run's first step or tokens seen. Long series are thinned to the extremes of step
    ranges; ``aligned`` instead to the means of step ranges that all runs share, so that runs can be averaged step by step.
    """
    ids = [run.pk for run in runs]
    buckets = max(100, POINTS // 2 // max(1, len(runs)))
    axes = metrics.sparklines(ids, f"@{axis}", 0) if axis != "step" else {}
    found: dict[str, Any] = {}
    for name in names[:NAMES]:
        whole = metrics.sparklines(ids, name, 0)
        longest = max((int(one.steps[-1]) for one in whole.values()), default=0)
        coarse = any(len(one) > 2 * buckets for one in whole.values())
        found[name] = []
        for run in runs:
            if run.pk in whole:
                one = whole[run.pk]
                thin = averaged(one, longest, buckets) if aligned and coarse else metrics.envelope(one, buckets)
                found[name].append(described(run, one, thin, axes, axis))
    return found


def described(run: Run, whole: Series, thin: Series, axes: dict[UUID, Series], axis: str) -> dict[str, Any]:
    finite = np.isfinite(thin.values)
    return {
        "run": run.number,
        "steps": thin.steps.tolist(),
        "x": None if axis == "step" else positions(thin, axes.get(run.pk), axis),
        "values": [value if fine else None for value, fine in zip(thin.values.tolist(), finite.tolist(), strict=True)],
        "thinned": len(thin) < len(whole),
        "nonfinite": int((~np.isfinite(whole.values)).sum()),
    }


def positions(series: Series, along: Series | None, axis: str) -> list[float | None]:
    """Where the steps lie on another axis; between two steps of the axis on the line between them, outside of it nowhere."""
    if along is None:
        return [None] * len(series)
    start = along.values[0] if axis == "time" else 0.0
    values = (along.values - start) / (60 if axis == "time" else 1)
    found = np.interp(series.steps, along.steps, values, left=np.nan, right=np.nan)
    return [value if value == value else None for value in found.tolist()]


def averaged(series: Series, longest: int, buckets: int) -> Series:
    """The mean of the finite values in each of ``buckets`` equal step ranges from 0 to ``longest``, at the range's first step."""
    fine = np.isfinite(series.values)
    place = series.steps[fine] * buckets // (longest + 1)
    sums, counts = np.bincount(place, series.values[fine], buckets), np.bincount(place, minlength=buckets)
    there = np.flatnonzero(counts)
    return Series(series.name, -(-there * (longest + 1) // buckets), sums[there] / counts[there])
