"""RLOO as TRL's RLOOTrainer runs it (Back to Basics, arXiv 2402.14740, eq. 8): a completion is one action, with one importance ratio, which is
clipped as a whole; the KL penalty is part of its reward.
"""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    normalize_advantages: bool = param(False, "Standardise the advantages over the generation batch.", title="Normalise advantages", advanced=True)


class RLOOTRL(Base):
    card = Card(
        name="rloo-trl",
        title="RLOO (TRL)",
        arxiv="2402.14740",
        system="REINFORCE leave-one-out",
        base="rloo",
        provenance="paper",
        source="arXiv 2402.14740, section 3.3; computed by TRL's RLOOTrainer (stable in TRL 1.16)",
        fit="core",
        idea=(
            "REINFORCE on whole completions: one importance ratio for all tokens of a completion, and the mean reward of the others in its "
            "group as the baseline."
        ),
        formula=(
            r"r_i = R(x, o_i) - \beta \log\frac{\pi_{old}(o_i|x)}{\pi_{ref}(o_i|x)}",
            r"A_i = r_i - \frac{1}{G-1}\sum_{j \neq i} r_j",
            r"J = \frac{1}{G}\sum_i \min\left(\rho_i A_i,\ \mathrm{clip}(\rho_i, 1-\epsilon, 1+\epsilon) A_i\right),"
            r"\quad \rho_i = \frac{\pi_\theta(o_i|x)}{\pi_{old}(o_i|x)}",
        ),
        departures=("The ratio is clipped as in PPO, as TRL does; the paper takes one step on each batch, where the ratio is 1.",),
    )
    Config = Config
    trainer = "rloo"
    trains = frozenset({"rloo"})
    scale = "leave-one-out"

    def arguments(self) -> dict[str, Any]:
        return {"normalize_advantages": self.config.normalize_advantages}
