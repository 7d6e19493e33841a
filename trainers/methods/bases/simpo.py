"""SimPO (arXiv 2405.14734, eq. 6): the reward of an answer is its mean log-probability, and a pair must be apart by a margin. No reference."""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card, Requirement


class Config(Strict):
    gamma: float = param(0.5, "Margin that the reward of the chosen answer should have over the rejected one.", title="Target margin", ge=0, le=100)
    likelihood: float = param(
        0.0,
        "Weight of the negative log-likelihood of the chosen answers; 0 is SimPO as published.",
        title="Likelihood weight",
        advanced=True,
        ge=0,
        le=100,
    )


class SimPO(Base):
    card = Card(
        name="simpo",
        title="SimPO",
        arxiv="2405.14734",
        system="Simple preference optimisation",
        base="dpo",
        provenance="paper",
        source="arXiv 2405.14734, section 2; computed by TRL's CPOTrainer (experimental in TRL 1.16) with loss_type simpo",
        fit="core",
        idea=(
            "Score an answer by its mean log-probability per token, which is what generation goes by; no reference policy, and no reward for length."
        ),
        formula=(
            r"h = \frac{\beta}{|y_w|}\log \pi_\theta(y_w|x) - \frac{\beta}{|y_l|}\log \pi_\theta(y_l|x) - \gamma",
            r"L = -\log \sigma(h)",
        ),
        claim=("rewards/accuracies", "higher"),
    )
    Config = Config
    trainer = "cpo"
    trains = frozenset({"cpo"})
    requires = (
        Requirement(
            "training.beta",
            "at least",
            0.5,
            "it scales means over tokens, which are small: the paper uses 2 to 2.5, and 10 for one model",
            hard=False,
        ),
    )

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "simpo", "cpo_alpha": self.config.likelihood, "simpo_gamma": self.config.gamma}
