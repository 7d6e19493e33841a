"""Reward model: Bradley-Terry on preference pairs, as in InstructGPT (arXiv 2203.02155, eq. 1). Pairs determine scores only up to a constant; the
centring term keeps their mean near 0 (arXiv 2312.09244). It is off by default, as in the paper.
"""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    centring: float = param(0.0, "Weight of the squared sum of both scores, a penalty that keeps their mean near 0.", title="Centring", ge=0, le=10)


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
        idea="Learn a scalar score per completion so that the preferred completion of every pair scores higher.",
        formula=(r"L = -\log \sigma\left(r_\theta(x, y_w) - r_\theta(x, y_l)\right)",),
        claim=("accuracy", "higher"),
    )
    Config = Config
    trainer = "reward"
    trains = frozenset({"reward"})

    def arguments(self) -> dict[str, Any]:
        return {"center_rewards_coefficient": self.config.centring or None}
