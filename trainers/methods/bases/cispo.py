"""CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4): the importance ratio is clipped and detached, so every token keeps a gradient. There is only an upper
bound, as in the paper.
"""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    epsilon_high: float = param(5.0, "Upper bound of the importance weight.", title="Max importance weight", gt=0)


class CISPO(Base):
    card = Card(
        name="cispo",
        title="CISPO",
        arxiv="2506.13585",
        system="MiniMax-M1",
        base="grpo",
        provenance="paper",
        source=(
            "arXiv 2506.13585, section 3.1; computed by TRL with loss_type cispo. The paper gives no value for the bound; 5 is TRL's recommendation"
        ),
        fit="core",
        idea="Clip the importance weight instead of the update: rare but decisive tokens keep their gradient in every pass.",
        formula=(r"J = \frac{1}{\sum_i |o_i|}\sum_i \sum_t \mathrm{sg}\left[\min(\rho_{it}, \epsilon_{high})\right] A_i \log \pi_\theta(o_{it})",),
        departures=("The paper gives no value for the bound; 5 is TRL's recommendation.",),
    )
    Config = Config
    trainer = "grpo"
    scale = "group"
    token_mean = True

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "cispo", "scale_rewards": self.scale, "epsilon_high": self.config.epsilon_high}
