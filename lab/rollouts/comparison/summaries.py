"""What each run came to, in one row: held-out reward at the end and at its best, and what it took."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from lab.training.runs import curve_values, metrics
from lab.training.runs.curve_values import WORDS, CurveValue
from lab.training.runs.header import compute_elapsed_seconds
from lab.training.runs.models import Run

HELD, ACCURACY = "heldout/reward", "heldout/accuracy"
# Key, metric and how the curve is read: the page says both above each column.
FIGURES = (
    ("final", "Held-out reward", WORDS["last"]),
    ("highest", "Held-out reward", WORDS["highest"]),
    ("accuracy", "Held-out accuracy", WORDS["last"]),
    ("reward", "Reward", WORDS["tail"]),
    ("entropy", "Token entropy", WORDS["tail"]),
)


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
    def values(self) -> list[RunValue | None]:
        """In the order of FIGURES."""
        return [getattr(self, key) for key, _, _ in FIGURES]

    @property
    def figures(self) -> dict[str, float | None]:
        return {key: value.number if value else None for (key, _, _), value in zip(FIGURES, self.values, strict=True)}


def summarize_compared_runs(runs: Sequence[Run]) -> list[RunSummary]:
    """A fixed number of queries, however many runs."""
    ids = [run.pk for run in runs]
    curves = {name: metrics.read_sparkline_series(ids, name, 0) for name in (HELD, ACCURACY, "reward", "entropy")}
    final = with_best(read_values(curves[HELD], curve_values.find_last_value))
    highest = with_best(read_values(curves[HELD], curve_values.find_highest_value))
    accuracy = with_best(read_values(curves[ACCURACY], curve_values.find_last_value))
    reward = with_best(read_values(curves["reward"], curve_values.compute_tail_mean))
    entropy = read_values(curves["entropy"], curve_values.compute_tail_mean)

    def summary(run: Run) -> RunSummary:
        key = run.pk
        return RunSummary(run, final.get(key), highest.get(key), accuracy.get(key), reward.get(key), entropy.get(key), compute_elapsed_seconds(run))

    return [summary(run) for run in runs]


def read_values(curves: dict[UUID, metrics.Series], read: Callable[[metrics.Series], CurveValue | None]) -> dict[UUID, RunValue | None]:
    found = {key: read(series) for key, series in curves.items()}
    return {key: RunValue(value.value, value.step) if value else None for key, value in found.items()}


def list_figure_heads(runs: Sequence[Run]) -> list[tuple[str, str, str]]:
    """(key, label, words) of each figure; an evaluation names its prompts where all runs have as many."""
    prompts = {curve_values.read_heldout_prompts(run.spec) for run in runs}
    same = prompts.pop() if len(prompts) == 1 else None
    return [(key, label, f"{words}, {same} prompts" if same and label.startswith("Held-out") else words) for key, label, words in FIGURES]


def with_best(values: dict[UUID, RunValue | None]) -> dict[UUID, RunValue | None]:
    """Marks the highest, where there is more than one to be higher than."""
    numbers = [value.number for value in values.values() if value]
    if len(numbers) < 2 or min(numbers) == max(numbers):
        return values
    return {key: value and RunValue(value.number, value.step, value.number == max(numbers)) for key, value in values.items()}
