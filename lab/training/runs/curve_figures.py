"""The numbers a run is summed up with that are read from its curves: which curve, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from lab.training.runs import curve_values, metrics
from lab.training.runs.curve_values import WORDS, CurveValue

HELD, ACCURACY = "heldout/reward", "heldout/accuracy"


@dataclass(frozen=True)
class CurveFigure:
    """``words`` say how the curve is read: pages show them with the label."""

    key: str
    label: str
    words: str
    metric: str
    read: Callable[[metrics.Series], CurveValue | None]


FIGURES = {
    figure.key: figure
    for figure in (
        CurveFigure("final", "Held-out reward", WORDS["last"], HELD, curve_values.find_last_value),
        CurveFigure("highest", "Held-out reward", WORDS["highest"], HELD, curve_values.find_highest_value),
        CurveFigure("accuracy", "Held-out accuracy", WORDS["last"], ACCURACY, curve_values.find_last_value),
        CurveFigure("reward", "Reward", WORDS["tail"], "reward", curve_values.compute_tail_mean),
        CurveFigure("entropy", "Token entropy", WORDS["tail"], "entropy", curve_values.compute_tail_mean),
    )
}


def read_curve_figures(runs: Sequence[UUID], keys: Iterable[str] = tuple(FIGURES)) -> dict[str, dict[UUID, CurveValue]]:
    """For each key the runs that have the number: two queries a curve, however many runs."""
    wanted = [FIGURES[key] for key in keys]
    curves = {metric: metrics.read_sparkline_series(runs, metric, 0) for metric in dict.fromkeys(figure.metric for figure in wanted)}
    return {figure.key: {run: value for run, series in curves[figure.metric].items() if (value := figure.read(series))} for figure in wanted}
