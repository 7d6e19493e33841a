"""RE-PO: robust preference optimisation by expectation-maximisation over label correctness (arXiv 2509.24159; first called RPO).

Each label may be wrong. Let p_i = sigmoid(L(l > w) - L(w > l)) for any pairwise loss L (for DPO: sigmoid of the margin), and let eta_k be the
reliability of the pair's annotator. The posterior that the label is correct is w_i = p_i eta_k / (p_i eta_k + (1 - p_i)(1 - eta_k)), detached; the
loss is -[w_i log p_i + (1 - w_i) log(1 - p_i)]; eta_k follows the mean posterior of its annotator's pairs, eta_k <- (1 - a) eta_k + a mean w. This is
our interpretation of second-hand notes that quote the equations (the abstract alone does not): the original text was not read. It differs from label
smoothing, which uses one fixed weight for every pair. Rows may name an ``annotator``; without one, there is a single virtual annotator. A column
``flipped`` (known in synthetic data) is never used for training, only for charts.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch


def compute_label_posterior(belief: Tensor, reliability: Tensor) -> Tensor:
    """(B,), (B,) -> (B,): probability that the label is correct, given the model's probability p and the annotator's reliability eta."""
    right, wrong = belief * reliability, (1 - belief) * (1 - reliability)
    return right / (right + wrong).clamp(min=torch.finfo(belief.dtype).tiny)


def soft_loss(evidence: Tensor, weight: Tensor) -> Tensor:
    """(B,), (B,) -> (B,): -[w log sigmoid(e) + (1 - w) log sigmoid(-e)]."""
    return -(weight * logsigmoid(evidence) + (1 - weight) * logsigmoid(-evidence))


class Config(Strict):
    reliability: float = param(0.9, "Initial reliability of every annotator.", title="Reliability (eta)", gt=0.5, lt=1)
    rate: float = param(0.1, "Update rate of the reliabilities, per step.", title="Rate (alpha)", ge=0, le=1)


class REPO(Method):
    card = Card(
        name="re-po",
        title="Robust preference optimisation",
        arxiv="2509.24159",
        system="RE-PO (RPO)",
        base="dpo",
        provenance="abstract",
        source="abstract; equations from two second-hand readings of arXiv v1 and v3",
        fit="core",
        idea="Treat each label as possibly wrong: weight it and its opposite by their probabilities, and learn how reliable every annotator is.",
        formula=(
            r"w_i = \frac{p_i \eta_k}{p_i \eta_k + (1 - p_i)(1 - \eta_k)}",
            r"L_i = -\left[w_i \log p_i + (1 - w_i) \log (1 - p_i)\right]",
            r"\eta_k \leftarrow (1 - \alpha)\,\eta_k + \alpha\,\overline{w}_k",
        ),
        reading="the original text was not read; equations and defaults are quoted by second-hand notes",
        departures=("Rows without an annotator belong to a single virtual one.",),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"pair_loss": "maps"}
    trains = frozenset({"dpo"})
    owns = frozenset({"labels", "pair loss"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.reliabilities: dict[str, float] = {}

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        evidence = base(-score) - base(score)  # for DPO: the score itself
        annotators = [str(name) for name in batch.column("annotator", "everybody")]
        known = [self.reliabilities.get(name, self.config.reliability) for name in annotators]
        weight = compute_label_posterior(torch.sigmoid(evidence.detach()), torch.tensor(known, device=score.device, dtype=score.dtype))
        self.learn(annotators, weight)
        self.report(batch, weight)
        return soft_loss(evidence, weight)

    def learn(self, annotators: list[str], weight: Tensor) -> None:
        for name in set(annotators):
            own = [value for value, whose in zip(weight.tolist(), annotators, strict=True) if whose == name]
            before, rate = self.reliabilities.get(name, self.config.reliability), self.config.rate
            self.reliabilities[name] = (1 - rate) * before + rate * sum(own) / len(own)

    def report(self, batch: "PairBatch", weight: Tensor) -> None:
        self.log("posterior", weight.mean())
        self.log_histogram("posterior_of_pairs", weight, 0.0, 1.0)
        self.log("reliability", sum(self.reliabilities.values()) / len(self.reliabilities))
        self.log("reliability_lowest", min(self.reliabilities.values()))
        flipped = torch.tensor([bool(value) for value in batch.column("flipped", False)], device=weight.device)
        for name, chosen in (("flipped", flipped), ("clean", ~flipped)):
            if flipped.any() and chosen.any():
                self.log(f"posterior_{name}", weight[chosen].mean())

    def state(self) -> dict[str, Any]:
        return {"reliabilities": dict(self.reliabilities)}

    def restore(self, state: dict[str, Any]) -> None:
        self.reliabilities = dict(state["reliabilities"])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Label correctness",
                (
                    Series("re-po/posterior", "all pairs"),
                    Series("re-po/posterior_clean", "clean pairs"),
                    Series("re-po/posterior_flipped", "flipped pairs"),
                    Series("re-po/reliability", "annotator reliability", dashed=True),
                ),
                help="Probability that a label is correct. Clean and flipped are known only in synthetic data.",
            ),
            Panel(
                "Posteriors of the pairs",
                (Series("re-po/posterior_of_pairs"),),
                "histogram",
                low=0.0,
                high=1.0,
                help="Share of a batch's pairs by posterior, from 0 to 1.",
            ),
        )
