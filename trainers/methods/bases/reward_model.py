"""Reward model: Bradley-Terry on preference pairs, as InstructGPT trains it (arXiv 2203.02155, eq. 1). The centring term keeps the scores'
mean near 0, which pairs alone leave open (arXiv 2312.09244); it is off by default, as in the paper.
"""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    centring: float = param(0.0, "Weight of the squared sum of both scores, which keeps their mean near 0.", title="Centring", ge=0, le=10)


class RewardModel(Base):
    card = Card(
        name="reward-model",
        title="Reward model",
        arxiv="2203.02155",
        system="InstructGPT, step 2",
        base="",
        provenance="paper",
        source="arXiv 2203.02155, section 3.5; computed by TRL's RewardTrainer",
        fit="core",
        idea="Learn one number per answer so that the preferred answer of every pair gets the larger one.",
        formula=(r"L = -\log \sigma\left(r_\theta(x, y_w) - r_\theta(x, y_l)\right)",),
        claim=("accuracy", "higher"),
    )
    Config = Config
    trainer = "reward"
    trains = frozenset({"reward"})

    def arguments(self) -> dict[str, Any]:
        return {"center_rewards_coefficient": self.config.centring or None}
