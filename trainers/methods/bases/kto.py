"""KTO (arXiv 2402.01306, eq. 7): learns from single completions labelled good or bad, with a value function modelled on how people weigh gains and
losses.
"""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    desirable_weight: float = param(1.0, "Loss weight of desirable (good) completions.", title="Desirable weight", ge=0, le=100)
    undesirable_weight: float = param(1.0, "Loss weight of undesirable (bad) completions.", title="Undesirable weight", ge=0, le=100)


class KTO(Base):
    card = Card(
        name="kto",
        title="KTO",
        arxiv="2402.01306",
        system="Kahneman-Tversky optimisation",
        base="",
        provenance="paper",
        source="arXiv 2402.01306, section 4; computed by TRL with loss_type kto",
        fit="core",
        idea=(
            "Learn from single completions labelled good or bad, without pairs: raise the good ones above a reference point and "
            "push the bad ones below it."
        ),
        formula=(
            r"r_\theta(x, y) = \log\frac{\pi_\theta(y|x)}{\pi_{ref}(y|x)}",
            r"L_{good} = \lambda_D \left(1 - \sigma(\beta (r_\theta - z_0))\right)",
            r"L_{bad} = \lambda_U \left(1 - \sigma(\beta (z_0 - r_\theta))\right)",
        ),
        departures=("The KL divergence from the reference is estimated on mismatched pairs of the batch and clamped at 0 from below, as in TRL.",),
        claim=("rewards/margins", "higher"),
    )
    Config = Config
    trainer = "kto"
    trains = frozenset({"kto"})

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "kto", "desirable_weight": self.config.desirable_weight, "undesirable_weight": self.config.undesirable_weight}
