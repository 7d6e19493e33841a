"""What each run came to, in one row: held-out reward at the end and at its best, and what it took."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np

from lab.training.ablations import quantities
from lab.training.runs import metrics
from lab.training.runs.header import compute_elapsed_seconds
from lab.training.runs.models import Run

HELD = "heldout/reward"


@dataclass(frozen=True)
class RunValue:
    """``step``: where it was measured, if at one step. ``best``: no other run of the table has a higher one."""

    number: float
    step: int | None = None
    best: bool = False


@dataclass(frozen=True)
class RunSummary:
    run: Run
    final: RunValue | None
    highest: RunValue | None
    accuracy: RunValue | None
    reward: RunValue | None
    entropy: RunValue | None
    seconds: float | None

    @property
    def figures(self) -> dict[str, float | None]:
        values = {"final": self.final, "highest": self.highest, "accuracy": self.accuracy, "reward": self.reward, "entropy": self.entropy}
        return {name: value.number if value else None for name, value in values.items()}


def summarize_compared_runs(runs: Sequence[Run]) -> list[RunSummary]:
    """A fixed number of queries, however many runs."""
    ids = [run.pk for run in runs]
    held = metrics.read_sparkline_series(ids, HELD, 0)
    final, highest = (
        {key: get_series_value(series, -1) for key, series in held.items()},
        {key: find_highest_value(series) for key, series in held.items()},
    )
    accuracy = {key: get_series_value(series, -1) for key, series in metrics.read_sparkline_series(ids, "heldout/accuracy", 0).items()}
    final, highest, accuracy, reward = (with_best(values) for values in (final, highest, accuracy, compute_tail_means("reward", runs)))
    entropy = compute_tail_means("entropy", runs)

    def summary(run: Run) -> RunSummary:
        key = run.pk
        return RunSummary(run, final.get(key), highest.get(key), accuracy.get(key), reward.get(key), entropy.get(key), compute_elapsed_seconds(run))

    return [summary(run) for run in runs]


def get_series_value(series: metrics.Series, index: int) -> RunValue | None:
    fine = np.isfinite(series.values)
    return RunValue(float(series.values[fine][index]), int(series.steps[fine][index])) if fine.any() else None


def find_highest_value(series: metrics.Series) -> RunValue | None:
    fine = np.isfinite(series.values)
    return get_series_value(series, int(np.argmax(series.values[fine]))) if fine.any() else None


def compute_tail_means(name: str, runs: Sequence[Run]) -> dict[UUID, RunValue | None]:
    """The mean over the last tenth of the steps: one step of a training batch is mostly noise."""
    means = quantities.read_run_values(quantities.AblationQuantity(name, name, "tail"), runs)
    return {key: RunValue(number) for key, number in means.items()}


def with_best(values: dict[UUID, RunValue | None]) -> dict[UUID, RunValue | None]:
    """Marks the highest, where there is more than one to be higher than."""
    numbers = [value.number for value in values.values() if value]
    if len(numbers) < 2 or min(numbers) == max(numbers):
        return values
    return {key: value and RunValue(value.number, value.step, value.number == max(numbers)) for key, value in values.items()}
