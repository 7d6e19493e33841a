"""What each run came to, in one row: held-out reward at the end and at its best, and what it took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from lab.training.runs import curve_values
from lab.training.runs.curve_figures import FIGURES, read_curve_figures
from lab.training.runs.curve_values import CurveValue
from lab.training.runs.header import compute_elapsed_seconds
from lab.training.runs.models import Run

UNRANKED = "entropy"  # neither more nor less of it is better


@dataclass(frozen=True)
class RunValue:
    """``step``: where it was measured, if at one step. ``best``: no other run of the table has a higher one."""

    number: float
    step: int | None = None
    best: bool = False


@dataclass(frozen=True)
class RunSummary:
    """``values`` are in the order of FIGURES."""

    run: Run
    values: list[RunValue | None]
    seconds: float | None

    @property
    def figures(self) -> dict[str, float | None]:
        return {key: value.number if value else None for key, value in zip(FIGURES, self.values, strict=True)}


def summarize_compared_runs(runs: Sequence[Run]) -> list[RunSummary]:
    """A fixed number of queries, however many runs."""
    read = read_curve_figures([run.pk for run in runs])
    ranked = {key: rank_values(values, key != UNRANKED) for key, values in read.items()}
    return [RunSummary(run, [ranked[key].get(run.pk) for key in FIGURES], compute_elapsed_seconds(run)) for run in runs]


def list_figure_heads(runs: Sequence[Run]) -> list[tuple[str, str, str]]:
    """(key, label, words) of each figure; an evaluation names its prompts where all runs have as many."""
    prompts = {curve_values.read_heldout_prompts(run.spec) for run in runs}
    same = prompts.pop() if len(prompts) == 1 else None
    heads = [(figure.key, figure.label, figure.words) for figure in FIGURES.values()]
    return [(key, label, f"{words}, {same} prompts" if same and label.startswith("Held-out") else words) for key, label, words in heads]


def rank_values(values: Mapping[UUID, CurveValue], ranked: bool) -> dict[UUID, RunValue]:
    """Marks the highest, where there is more than one to be higher than."""
    numbers = [value.value for value in values.values()]
    highest = max(numbers) if ranked and len(set(numbers)) > 1 else None
    return {run: RunValue(value.value, value.step, value.value == highest) for run, value in values.items()}
