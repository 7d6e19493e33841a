"""Several reward models of the team as one, whose disagreement costs: mean - kappa * standard deviation (after CART, arXiv 2509.24713)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem
from trainers.rewards.base import RewardFunction
from trainers.rewards.reward_model import RewardModelParameters, RewardModelScore
from trainers.rewards.scores import Score

if TYPE_CHECKING:
    from trainers.rewards.scores import Rows, ScoringContext

Folder = Annotated[str, Field(min_length=1)]


def discount_disagreement(values: Sequence[float], kappa: float) -> float:
    """The mean of several models' scores minus ``kappa`` of their standard deviation (over the models that there are)."""
    return fmean(values) - kappa * pstdev(values)


class RewardEnsembleParameters(Strict):
    folders: list[Folder] = param(
        ..., "Folders of finished runs that trained reward models, the same with other seeds.", title="Runs", min_length=2, max_length=16
    )
    kappa: float = param(1.0, "How much their disagreement costs, in standard deviations; 0: their mean.", title="Discount (kappa)", ge=0, le=100)


class RewardEnsemble(RewardFunction):
    name = "reward-ensemble"
    title = "Ensemble of reward models"
    summary = "The mean of several reward models minus a multiple of their standard deviation, so that what they disagree about pays less."
    Parameters = RewardEnsembleParameters
    light = False

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters)
        self.members = [RewardModelScore(RewardModelParameters(folder=folder)) for folder in parameters.folders]

    @classmethod
    def find_missing(cls, parameters: Any) -> list[Problem]:
        found = list[Problem]()
        for folder in parameters.folders:
            missing = RewardModelScore.find_missing(RewardModelParameters(folder=folder))
            found += [Problem("folders", problem.value, problem.message, problem.fix) for problem in missing]
        return found

    def open(self, context: ScoringContext) -> None:
        super().open(context)
        for member in self.members:
            member.open(context)

    def score_batch(self, rows: Rows) -> list[Score]:
        return [self.join_scores(own) for own in zip(*(member.score_batch(rows) for member in self.members), strict=True)]

    def join_scores(self, scores: tuple[Score, ...]) -> Score:
        """No opinion where a model has none; the first model that says why is quoted."""
        seconds = sum(score.seconds for score in scores)
        values = [score.value for score in scores if score.value is not None]
        if len(values) < len(scores):
            return Score(None, next((score.error for score in scores if score.error), ""), seconds)
        joined = discount_disagreement(values, self.parameters.kappa)
        if not math.isfinite(joined):
            return Score(None, "the models' scores are not finite", seconds)
        return Score(joined, "", seconds)
