"""GKD (arXiv 2306.13649, algorithm 1): distillation on a mix of the policy's own answers and given ones, by a divergence of whole distributions."""

from typing import Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Base
from trainers.methods.card import Card


class Config(Strict):
    on_policy: float = param(
        0.5, "Share of batches whose answers the policy samples (lambda); the others take the demonstrations.", title="On-policy share", ge=0, le=1
    )
    divergence: float = param(
        0.5,
        "Between forward KL, which covers all the teacher does (0), and reverse KL, which keeps to its modes (1).",
        title="Divergence (beta)",
        ge=0,
        le=1,
    )
    sequence_level: bool = param(
        False, "Where the policy does not sample, the teacher does, in place of the demonstrations.", title="Teacher's answers (seq_kd)"
    )


class GKD(Base):
    card = Card(
        name="gkd",
        title="GKD",
        arxiv="2306.13649",
        system="Generalised knowledge distillation",
        base="",
        provenance="paper",
        source="arXiv 2306.13649, section 3; computed by TRL's GKDTrainer (experimental in TRL 1.16)",
        fit="core",
        idea=(
            "Learn from a teacher's distribution over every token, on answers that the policy samples itself: it is corrected where it "
            "really goes wrong."
        ),
        formula=(
            r"m = (1 - \beta)\,\pi_\theta + \beta\,\pi_T",
            r"D_\beta = \beta\,\mathrm{KL}(\pi_T \,\|\, m) + (1 - \beta)\,\mathrm{KL}(\pi_\theta \,\|\, m)",
            r"L = \frac{1}{|y|}\sum_t D_\beta(\pi_T(\cdot|x, y_{<t}), \pi_\theta(\cdot|x, y_{<t}))",
            r"y \sim \pi_\theta(\cdot|x) \text{ with probability } \lambda, \text{ else given}",
        ),
        departures=(
            "Whether the policy samples is drawn for each micro-batch, as in TRL.",
            "The divergence of sampled answers is divided by the number of tokens of the demonstrations that they replace, as in TRL.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    trainer = "gkd"
    trains = frozenset({"gkd"})

    def arguments(self) -> dict[str, Any]:
        return {"lmbda": self.config.on_policy, "beta": self.config.divergence, "seq_kd": self.config.sequence_level}
