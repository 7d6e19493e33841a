"""A reward model that a run of the team has trained."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.policy_folder import PolicyFolder, check_weights, refuse_code
from trainers.contract.problems import Problem
from trainers.contract.spec import FINAL
from trainers.rewards.base import RewardFunction
from trainers.rewards.model_batches import load_once, score_together

if TYPE_CHECKING:
    from trainers.policies.reward_models import RewardModel
    from trainers.rewards.scores import Rows, Score

CLASSIFIER = "ForSequenceClassification"  # end of the architecture that a reward run exports
FIX = "choose a finished run that trained a reward model"


class RewardModelParameters(Strict):
    folder: str = param(..., "Folder of a finished run that trained a reward model.", title="Run", min_length=1)
    scale: Literal["raw", "sigmoid"] = param("raw", "The model's number as it is, or squeezed between 0 and 1.", title="Scale")


class RewardModelScore(RewardFunction):
    name = "reward-model"
    title = "Reward model"
    summary = "What a reward model says of prompt and completion; the model is one that a run has trained."
    Parameters = RewardModelParameters
    light = False

    @classmethod
    def find_missing(cls, parameters: Any) -> list[Problem]:
        final = Path(parameters.folder) / FINAL
        if not final.is_dir():
            return [Problem("folder", parameters.folder, f"has no folder {FINAL} on this machine", FIX)]
        folder = PolicyFolder(final, "folder")
        config = folder.json("config.json")
        if config is not None:
            refuse_code(folder, config, "config.json")
            kinds = config.get("architectures")
            if not (isinstance(kinds, list) and kinds and all(str(kind).endswith(CLASSIFIER) for kind in kinds)):
                folder.refuse("is no reward model", FIX)
            else:
                check_weights(folder)
        return [Problem(problem.field, parameters.folder, problem.message, problem.fix) for problem in folder.problems]

    def score_batch(self, rows: Rows) -> list[Score]:
        model = self.load()

        def score(taken: Sequence[list[int]]) -> list[float]:
            values = model.score(taken)
            return [compute_sigmoid(value) for value in values] if self.parameters.scale == "sigmoid" else values

        return score_together(rows, lambda text, example: model.tokenize(example.prompt, text), score)

    def load(self) -> RewardModel:
        from trainers.policies.reward_models import RewardModel

        final, device = Path(self.parameters.folder) / FINAL, self.context.device
        return load_once(self.context, f"the reward model in {final}", lambda: RewardModel(final, device))


def compute_sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else math.exp(value) / (1 + math.exp(value))
