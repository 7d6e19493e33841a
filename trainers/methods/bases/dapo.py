"""DAPO's loss (arXiv 2503.14476, eq. 8): the clip range is wider above 1 than below, and the loss is averaged over all tokens of the batch, so that
every token has the same weight.
"""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    epsilon_high: float = param(0.28, "Upper clip range; the lower one is the trainer's epsilon.", title="Clip ε high", gt=0, lt=10)


class DAPO(Base):
    card = Card(
        name="dapo",
        title="DAPO",
        arxiv="2503.14476",
        system="DAPO",
        base="grpo",
        provenance="paper",
        source="arXiv 2503.14476, sections 3.1 and 3.3; computed by TRL with loss_type dapo",
        fit="core",
        idea=(
            "GRPO with a higher upper clip range, which lets rare tokens become more likely, and with equal weight for every "
            "token, however long its completion."
        ),
        formula=(
            r"J = \frac{1}{\sum_i |o_i|}\sum_i \sum_t \min\left(\rho_{it} A_i,"
            r"\ \mathrm{clip}(\rho_{it}, 1-\epsilon_{low}, 1+\epsilon_{high}) A_i\right)",
        ),
        departures=("Dynamic sampling and the overlong penalty are not implemented.",),
        claim=("entropy", "higher"),
    )
    Config = Config
    trainer = "grpo"
    scale = "group"
    token_mean = True

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "dapo", "scale_rewards": self.scale, "epsilon_high": self.config.epsilon_high}
