"""CPO (arXiv 2401.08417, eq. 3 to 5): DPO with a uniform reference, and the likelihood of the chosen answer as a regulariser."""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    likelihood: float = param(1.0, "Weight of the negative log-likelihood of the chosen answers.", title="Likelihood weight", ge=0, le=100)
    label_smoothing: float = param(
        0.0, "Assumed share of pairs with the wrong answer preferred.", title="Label smoothing", advanced=True, ge=0, lt=0.5
    )


class CPO(Base):
    card = Card(
        name="cpo",
        title="CPO",
        arxiv="2401.08417",
        system="Contrastive preference optimisation",
        base="dpo",
        provenance="paper",
        source="arXiv 2401.08417, section 3; computed by TRL's CPOTrainer (experimental in TRL 1.16) with loss_type sigmoid",
        fit="core",
        idea="DPO without a reference policy, which halves the forward passes; the likelihood of the chosen answers keeps the policy near good ones.",
        formula=(
            r"h = \beta \log \pi_\theta(y_w|x) - \beta \log \pi_\theta(y_l|x)",
            r"L = -\log \sigma(h) - \lambda \log \pi_\theta(y_w|x)",
        ),
        departures=("The likelihood is averaged over the tokens of the batch, as in TRL, and not summed over an answer.",),
        claim=("rewards/accuracies", "higher"),
    )
    Config = Config
    trainer = "cpo"
    trains = frozenset({"cpo"})

    def arguments(self) -> dict[str, Any]:
        return {"loss_type": "sigmoid", "cpo_alpha": self.config.likelihood, "label_smoothing": self.config.label_smoothing}
