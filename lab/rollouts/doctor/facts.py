"""What the rules look at: a run's metrics, its newest training rollouts and a few settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from lab.training.runs.metrics import Series


@dataclass(frozen=True)
class TrainingAnswer:
    """One stored training rollout; ``tail`` is the end of its completion."""

    step: int
    reward: float | None
    rewards: Mapping[str, float | None]
    finish: str
    length: int | None
    tail: str = ""


@dataclass(frozen=True)
class RunFacts:
    """``series`` may hold values that are not finite; ``of`` leaves them out. ``answers`` are the newest training rollouts, newest first."""

    trainer: str
    series: Mapping[str, Series]
    answers: Sequence[TrainingAnswer] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    length_limit: int | None = None  # tokens a completion may have
    heldout_prompts: int | None = None
    recipe: frozenset[str] = frozenset()  # names of the base and of the methods stacked on it

    def of(self, name: str) -> Series:
        """The finite points of a metric; empty where it was not logged."""
        series = self.series.get(name)
        if series is None:
            return Series(name, np.empty(0, dtype=np.int64), np.empty(0))
        finite = np.isfinite(series.values)
        return series if finite.all() else Series(name, series.steps[finite], series.values[finite])
