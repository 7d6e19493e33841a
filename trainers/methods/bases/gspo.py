"""GSPO (arXiv 2507.18071, eq. 5 to 7), as published: one importance ratio per completion, the geometric mean of its token ratios, clipped as a whole.
The clip ranges are far narrower than GRPO's because a mean over tokens moves far less than a single token.
"""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    epsilon_low: float = param(3e-4, "Clip range of the sequence ratio below 1.", title="Clip ε low", gt=0, lt=1)
    epsilon_high: float = param(4e-4, "Clip range of the sequence ratio above 1.", title="Clip ε high", gt=0, lt=10)


class GSPO(Base):
    card = Card(
        name="gspo",
        title="GSPO",
        arxiv="2507.18071",
        system="Group Sequence Policy Optimization",
        base="grpo",
        provenance="paper",
        source="arXiv 2507.18071, section 4.1; computed by TRL with importance_sampling_level sequence",
        fit="core",
        idea="The reward belongs to the whole completion, so the importance ratio should too: use one ratio per completion instead of one per token.",
        formula=(
            r"s_i = \exp\left(\frac{1}{|o_i|}\sum_t \log\frac{\pi_\theta(o_{it})}{\pi_{old}(o_{it})}\right)",
            r"J = \frac{1}{G}\sum_i \min\left(s_i A_i,\ \mathrm{clip}(s_i, 1-\epsilon_{low}, 1+\epsilon_{high}) A_i\right)",
        ),
    )
    Config = Config
    trainer = "grpo"
    scale = "group"

    def arguments(self) -> dict[str, Any]:
        config = self.config
        return {
            "loss_type": "grpo",
            "scale_rewards": self.scale,
            "importance_sampling_level": "sequence",
            "epsilon": config.epsilon_low,
            "epsilon_high": config.epsilon_high,
        }
