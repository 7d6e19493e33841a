"""RewardFunction: one function of the library. A subclass says what it is, which parameters it has, and scores a completion."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

from trainers.contract.hyperparameters import Strict
from trainers.contract.problems import Problem
from trainers.rewards.scores import Score, ScoringContext, score_each

if TYPE_CHECKING:
    from trainers.rewards.scores import Rows
    from trainers.tasks.base import Example


class NoParameters(Strict):
    """A function without parameters."""


class RewardFunction:
    """Override ``score``, or ``score_batch`` where rows are better scored together. None is "no opinion"; an exception is the row's error."""

    name: ClassVar[str]
    title: ClassVar[str]
    summary: ClassVar[str]
    Parameters: ClassVar[type[Strict]] = NoParameters
    light: ClassVar[bool] = True  # False: it loads a model or asks an endpoint, which checks before a run leave out

    def __init__(self, parameters: Any) -> None:
        self.parameters = parameters
        self.context = ScoringContext()
        self.counted: Counter[str] = Counter()

    def score(self, text: str, example: Example) -> float | None:
        raise NotImplementedError

    def score_batch(self, rows: Rows) -> list[Score]:
        return score_each(rows, self.score)

    @classmethod
    def find_missing(cls, parameters: Any) -> list[Problem]:
        """What it would need on this machine and does not find: a folder, an endpoint. Fields are named relative to the parameters."""
        return []

    def collect(self) -> dict[str, float]:
        counted = dict(self.counted)
        self.counted.clear()
        return {name: float(count) for name, count in counted.items()}

    def open(self, context: ScoringContext) -> None:
        self.context = context

    def close(self) -> None:
        pass
