"""Matched budgets: what all cells of a grid have used when they are compared.

``steps`` are set before the launch. The others are read afterwards: every run trains to its end, and its curves are cut where it had used as much as
the budget says, so that a cell that writes less or learns sooner is not compared with one that has used more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
from pydantic import ValidationError

from lab.training.runs import metrics
from lab.training.runs.models import Run
from lab.training.runs.process_counts import read_run_size
from trainers.contract.hyperparameters import TRAINERS, GroupRollouts, Optimised, Rollouts

STEPS, TOKENS, WRITTEN, REACHED = "steps", "tokens", "written", "reached"
KINDS = {
    "": "Each run to its end",
    STEPS: "Steps",
    TOKENS: "Training tokens",
    WRITTEN: "Policy tokens",
    REACHED: "A metric reaches a value",
}
HELP = {
    STEPS: "Every run trains for so many steps.",
    TOKENS: "Runs are compared at the last evaluation before they had read so many tokens, prompts and answers together.",
    WRITTEN: "Runs are compared at the last evaluation before the policy had written so many tokens in training.",
    REACHED: "Runs are compared at the first evaluation at which the metric is at least the value.",
}
LENGTH = "completions/mean_length"


@dataclass(frozen=True)
class Budget:
    """``metric`` of ``reached`` alone."""

    kind: str = ""
    value: float = 0.0
    metric: str = ""

    @property
    def steps(self) -> int:
        """Steps that every run trains; 0: as many as its cell says."""
        return int(self.value) if self.kind == STEPS else 0

    @property
    def cuts(self) -> bool:
        """Curves are cut when they are read."""
        return self.kind in (TOKENS, WRITTEN, REACHED)

    @property
    def words(self) -> str:
        """What is matched, after "matched at"."""
        if not self.kind:
            return ""
        if self.kind == REACHED:
            return f"{self.metric} ≥ {self.value:g}"
        return f"{self.value:,.0f} {KINDS[self.kind].lower()}".replace(",", "\u202f")

    def as_json(self) -> dict[str, Any]:
        if not self.kind:
            return {}
        return {"kind": self.kind, "value": self.value, **({"metric": self.metric} if self.kind == REACHED else {})}


def read_budget(stored: Mapping[str, Any]) -> Budget:
    return Budget(stored.get("kind", ""), stored.get("value", 0.0), stored.get("metric", ""))


@dataclass(frozen=True)
class Cut:
    """``step``: up to where a run's curves are read, None for all of them. ``is_short``: it ended before the budget was used up or reached."""

    step: int | None
    is_short: bool


def find_budget_cuts(budget: Budget, runs: Sequence[UUID]) -> dict[UUID, Cut]:
    """Where the curves of each run are cut; nothing for a budget that cuts none. Three queries at most."""
    if not budget.cuts:
        return {}
    name = {TOKENS: "@tokens", WRITTEN: LENGTH, REACHED: budget.metric}[budget.kind]
    found = metrics.read_sparkline_series(runs, name, 0)
    completions = fetch_step_completions(runs) if budget.kind == WRITTEN else {}
    return {run: find_cut(budget, found.get(run), completions.get(run, 0)) for run in runs}


def find_cut(budget: Budget, series: metrics.Series | None, completions: int = 0) -> Cut:
    """``completions``: those of a step, for a budget in policy tokens."""
    if series is None:
        return Cut(None, True)
    if budget.kind == REACHED:
        return find_reached_cut(series, budget.value)
    used = series.values if budget.kind == TOKENS else sum_written_tokens(series.values, completions)
    return find_used_cut(series.steps, used, budget.value)


def find_reached_cut(series: metrics.Series, value: float) -> Cut:
    """The first step at which a curve is at least ``value``."""
    there = np.flatnonzero(series.values >= value)  # false for NaN
    return Cut(int(series.steps[there[0]]), False) if there.size else Cut(None, True)


def find_used_cut(steps: metrics.Integers, used: metrics.Floats, value: float) -> Cut:
    """The last step after which no more than ``value`` was used; ``used`` (N,) rises. 0, before training, where the first step takes more."""
    above = np.flatnonzero(used > value)
    if not above.size:
        return Cut(None, bool(used.size == 0 or used[-1] < value))
    first = int(above[0])
    return Cut(int(steps[first - 1]) if first else 0, False)


def sum_written_tokens(lengths: metrics.Floats, completions: int) -> metrics.Floats:
    """Tokens that the policy has written by each logged step (N,): mean length × completions of a step, summed."""
    return np.cumsum(np.nan_to_num(lengths, nan=0.0) * completions)


def fetch_step_completions(runs: Sequence[UUID]) -> dict[UUID, int]:
    """Run → completions of a step, in one query without the rest of the specs."""
    rows = Run.across_teams.filter(pk__in=runs).values_list("pk", "spec__training", "spec__resources")
    return {key: count_step_completions(training or {}, read_run_size({"resources": resources}).processes) for key, training, resources in rows}


def count_step_completions(training: Mapping[str, Any], processes: int) -> int:
    """Completions whose mean length one logged step tells: those of its generation batch, or of all batches that are generated for it.

    0 for a trainer that samples nothing, and for settings of another version that cannot be read any more.
    """
    try:
        settings = TRAINERS[training["trainer"]].model_validate(training)
    except (KeyError, ValidationError):
        return 0
    if not isinstance(settings, Rollouts):
        return 0
    micro = (settings.steps_per_generation or settings.gradient_accumulation_steps) if isinstance(settings, GroupRollouts) else 1
    accumulated = settings.gradient_accumulation_steps if isinstance(settings, Optimised) else 1
    return settings.generation_batch_size(processes) * max(1, accumulated // micro)
