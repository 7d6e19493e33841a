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
class Value:
    """``step``: where it was measured, if at one step. ``best``: no other run of the table has a higher one."""

    number: float
    step: int | None = None
    best: bool = False


@dataclass(frozen=True)
class Summary:
    run: Run
    final: Value | None
    highest: Value | None
    accuracy: Value | None
    reward: Value | None
    entropy: Value | None
    seconds: float | None

    @property
    def figures(self) -> dict[str, float | None]:
        found = {"final": self.final, "highest": self.highest, "accuracy": self.accuracy, "reward": self.reward, "entropy": self.entropy}
        return {name: value.number if value else None for name, value in found.items()}


def summarize_compared_runs(runs: Sequence[Run]) -> list[Summary]:
    """A fixed number of queries, however many runs."""
    ids = [run.pk for run in runs]
    held = metrics.read_sparkline_series(ids, HELD, 0)
    final, highest = (
        {key: get_series_value(series, -1) for key, series in held.items()},
        {key: find_highest_value(series) for key, series in held.items()},
    )
    accuracy = {key: get_series_value(series, -1) for key, series in metrics.read_sparkline_series(ids, "heldout/accuracy", 0).items()}
    final, highest, accuracy, reward = (with_best(found) for found in (final, highest, accuracy, compute_tail_means("reward", runs)))
    entropy = compute_tail_means("entropy", runs)

    def summary(run: Run) -> Summary:
        key = run.pk
        return Summary(run, final.get(key), highest.get(key), accuracy.get(key), reward.get(key), entropy.get(key), compute_elapsed_seconds(run))

    return [summary(run) for run in runs]


def get_series_value(series: metrics.Series, place: int) -> Value | None:
    fine = np.isfinite(series.values)
    return Value(float(series.values[fine][place]), int(series.steps[fine][place])) if fine.any() else None


def find_highest_value(series: metrics.Series) -> Value | None:
    fine = np.isfinite(series.values)
    return get_series_value(series, int(np.argmax(series.values[fine]))) if fine.any() else None


def compute_tail_means(name: str, runs: Sequence[Run]) -> dict[UUID, Value | None]:
    """The mean over the last tenth of the steps: one step of a training batch is mostly noise."""
    found = quantities.read_run_values(quantities.Quantity(name, name, "tail"), runs)
    return {key: Value(number) for key, number in found.items()}


def with_best(found: dict[UUID, Value | None]) -> dict[UUID, Value | None]:
    """Marks the highest, where there is more than one to be higher than."""
    numbers = [value.number for value in found.values() if value]
    if len(numbers) < 2 or min(numbers) == max(numbers):
        return found
    return {key: value and Value(value.number, value.step, value.number == max(numbers)) for key, value in found.items()}
