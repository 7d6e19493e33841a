"""The points of a few metrics of several runs, as JSON for the page's charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any
from uuid import UUID

import numpy as np

from lab.training.runs import metric_thinning, metrics
from lab.training.runs.metrics import Series
from lab.training.runs.models import Run
from lab.training.runs.snapshot import count_samples_per_step

NAMES = 8  # metrics in one answer
POINTS = 12_000  # of one metric over all runs
AXES = ("step", "time", "tokens", "samples")
MEASURED_AXES = ("time", "tokens")  # with each step
HEADS = """
SELECT name, run_id, id, attempt, count, first_step, last_step, lo, hi, lo_step, hi_step FROM runs_metricchunk
WHERE run_id = ANY(%s) AND name = ANY(%s) ORDER BY name, run_id, attempt, chunk
"""


def build_metric_series(runs: Sequence[Run], names: Sequence[str], axis: str, aligned: bool) -> dict[str, Any]:
    """``{metric: [{run, steps, x, values, thinned, nonfinite, abstained}, …]}``, runs without the metric left out.

    ``x`` is null on the step axis, else minutes since the run's first step, tokens seen or samples trained on. Long series are thinned to the
    extremes of step ranges; ``aligned`` instead to the means of step ranges that all runs share, so that runs can be averaged step by step.
    """
    names_read = list(dict.fromkeys(names))[:NAMES]
    buckets = max(100, POINTS // 2 // max(1, len(runs)))
    axes = metrics.read_sparkline_series([run.pk for run in runs], f"@{axis}", 0) if axis in MEASURED_AXES else {}
    read = series_of(runs, names_read, 0 if aligned else buckets)
    series_by_name: dict[str, Any] = {}
    for name in names_read:
        of_runs = [(run, *read[name, run.pk]) for run in runs if (name, run.pk) in read]
        longest = max((int(series.steps[-1]) for _, series, _ in of_runs), default=0)
        coarse = any(len(series) > 2 * buckets for _, series, _ in of_runs)
        series_by_name[name] = []
        for run, series, count in of_runs:
            thin = average_step_ranges(series, longest, buckets) if aligned and coarse else metrics.compute_envelope(series, buckets)
            places = compute_sample_positions(thin, run) if axis == "samples" else interpolate_axis_positions(thin, axes.get(run.pk), axis)
            points = series_to_json(thin, places)
            bad, absent = metrics.count_nonfinite(name, series.values)
            series_by_name[name].append({"run": run.number, "thinned": len(thin) < count, "nonfinite": bad, "abstained": absent, **points})
    return series_by_name


def series_of(runs: Sequence[Run], names: Sequence[str], buckets: int) -> dict[tuple[str, UUID], tuple[Series, int]]:
    """Each metric of each run that has it, with how many points it has in all.

    With ``buckets`` chunks of long series stand for their points, so that a point may be missing that is no extreme of its chunk.
    """
    limits = {run.pk: metrics.read_attempt_cutoffs(run.pk) if run.attempt > 1 else {} for run in runs}
    rows = metric_thinning.fetch_binary_rows(HEADS, [[run.pk for run in runs], list(names)])
    plans = {key: plan_chunk_reads(list(group), limits, buckets) for key, group in groupby(rows, lambda row: (str(row[0]), row[1]))}
    chunks = [head.id for plan in plans.values() for head in plan.whole]
    points = {key: (steps, values) for key, steps, values in metric_thinning.fetch_binary_rows(metric_thinning.POINTS, [chunks])} if chunks else {}
    series_by_key = {}
    for (name, run_id), plan in plans.items():
        steps, values = metric_thinning.read_whole(plan.whole, points)
        series = metric_thinning.merge_standing_extremes(name, steps, values, plan.standing) if plan.standing else Series(name, steps, values)
        if len(series):
            series_by_key[name, run_id] = series, len(steps) + sum(head.points for head in plan.standing)
    return series_by_key


def plan_chunk_reads(rows: Sequence[tuple[Any, ...]], limits: Mapping[UUID, dict[int, int]], buckets: int) -> metric_thinning.ReadPlan:
    return metric_thinning.plan_chunk_reads([metric_thinning.head_of((name, *rest), limits[run_id]) for name, run_id, *rest in rows], buckets)


def series_to_json(series: Series, x: list[float | None] | None) -> dict[str, Any]:
    """JSON has neither NaN nor infinity: they are null, which breaks the line."""
    finite = np.isfinite(series.values)
    values = [value if fine else None for value, fine in zip(series.values.tolist(), finite.tolist(), strict=True)]
    return {"steps": series.steps.tolist(), "x": x, "values": values}


def interpolate_axis_positions(series: Series, along: Series | None, axis: str) -> list[float | None] | None:
    """Where the steps lie on another axis; between two steps of the axis on the line between them, outside of it nowhere."""
    if axis == "step":
        return None
    if along is None:
        return [None] * len(series)
    start = along.values[0] if axis == "time" else 0.0
    values = (along.values - start) / (60 if axis == "time" else 1)
    interpolated = np.interp(series.steps, along.steps, values, left=np.nan, right=np.nan)
    return [value if value == value else None for value in interpolated.tolist()]


def compute_sample_positions(series: Series, run: Run) -> list[float | None]:
    """Samples trained on by each step; nowhere in a run that does not say how many a step takes."""
    samples = count_samples_per_step(run)
    return [float(step * samples["per_step"]) if samples else None for step in series.steps.tolist()]


def average_step_ranges(series: Series, longest: int, buckets: int) -> Series:
    """The mean of the finite values in each of ``buckets`` equal step ranges from 0 to ``longest``, at the range's first step."""
    fine = np.isfinite(series.values)
    buckets_of_points = series.steps[fine] * buckets // (longest + 1)
    sums, counts = np.bincount(buckets_of_points, series.values[fine], buckets), np.bincount(buckets_of_points, minlength=buckets)
    filled = np.flatnonzero(counts)
    return Series(series.name, -(-filled * (longest + 1) // buckets), sums[filled] / counts[filled])
