"""MNPO: multiplayer Nash preference optimisation (arXiv 2509.23102), the time-dependent variant TD-MNPO as in its code.

The policy plays against a population: the reference and its own past checkpoints. Let D(p) be the difference between the length-averaged
log-probabilities of chosen and rejected under p. Then

    h = D(pi) - rho D(ref) - (1 - rho) sum_j lambda_j D(past_j),   loss = (h - 1 / (2 eta))^2.

It differs from its parent IPO only in the policies that the margin is measured against. rho = 1 is IPO; one past checkpoint is INPO. Iterations are
runs: each samples pairs from its own policy and lists the policies of earlier runs in ``history``. Log-probabilities under the frozen checkpoints are
computed once for each pair: in the first epoch, a step takes two more forward passes for each checkpoint.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.data import pair_rows
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext


def compute_opponent_margin(reference: Tensor, past: Tensor, weights: Tensor, rho: float) -> Tensor:
    """Margins (B,) of the reference and (J, B) of J past policies, weights (J,) that sum to 1 -> (B,) margin of the population."""
    if not len(past):
        return reference
    return rho * reference + (1 - rho) * (weights[:, None] * past).sum(0)


def squared_distance(margin: Tensor, against: Tensor, eta: float) -> Tensor:
    """(B,), (B,) -> (B,): (h - 1 / (2 eta))^2."""
    return (margin - against - 1 / (2 * eta)) ** 2


def parsed_weights(text: str, count: int) -> list[float]:
    """Weights of ``count`` opponents that sum to 1; uniform for an empty text. Raises ValueError."""
    values = [float(part) for part in text.split(",")] if text.strip() else [1.0] * count
    if len(values) != count or min(values, default=1.0) < 0 or (count and not sum(values) > 0):
        raise ValueError(f"{count} weights of 0 and more are needed, one for each past policy")
    return [value / sum(values) for value in values]


class Config(Strict):
    rho: float = param(1 / 3, "Weight of the reference in the population; the past policies share the rest.", title="rho", ge=0, le=1)
    eta: float = param(0.0075, "The target margin is 1 / (2 eta). The paper's runs use 0.005 to 0.01.", title="eta", gt=0)
    history: str = param("", "Folders of past policies, newest first, separated by commas; empty for the first iteration.", title="Past policies")
    weights: str = param("", "Weights of the past policies, separated by commas; empty: equal weights.", title="Past policy weights", advanced=True)
    most: int = param(2, "Max number of past policies used; the first ones are taken.", title="Max past policies", advanced=True, ge=1)
    reward_scale: float = param(10.0, "Scale of the logged implicit rewards (the paper's beta); not used in the loss.", advanced=True, gt=0)


class MNPO(Method):
    card = Card(
        name="mnpo",
        title="Multiplayer Nash preference optimisation",
        arxiv="2509.23102",
        system="MNPO (TD-MNPO)",
        base="ipo",
        provenance="code",
        source="smiles724/MNPO: mnpo_trainer.py, mnpo_config.py, precompute.py and the training configurations",
        fit="core",
        idea=(
            "Improve against a weighted population of opponents (the reference and the policy's own past checkpoints) instead of only the reference."
        ),
        formula=(
            r"D_p = \frac{1}{|y_w|} \log p(y_w|x) - \frac{1}{|y_l|} \log p(y_l|x)",
            r"h = D_{\pi} - \rho\, D_{ref} - (1 - \rho) \sum_j \lambda_j D_{\pi_{t-j}}",
            r"L = \left(h - \frac{1}{2 \eta}\right)^2",
        ),
        departures=(
            "Past checkpoints have equal weights by default; the released configurations set .25 and .75 under a name that the trainer never reads.",
            "Without a past checkpoint, the reference has the full weight; the authors' code drops the second term.",
            "The heterogeneous variant, with a reward model for each opponent, is not implemented.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"pair_loss": "makes"}
    trains = frozenset({"dpo"})
    owns = frozenset({"pair loss"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.past: list[Any] = []  # frozen models
        self.known: dict[int, list[float]] = {}  # row -> its margin under each of them; they do not move

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        folders = [part.strip() for part in self.config.history.split(",") if part.strip()][: self.config.most]
        try:
            self.shares = parsed_weights(self.config.weights, len(folders))
        except ValueError as error:
            raise SpecError([Problem("methods", self.config.weights, f"mnpo: {error}", "write as many numbers as folders")]) from None
        self.past = [run.frozen(folder) for folder in folders]

    def past_margins(self, batch: "PairBatch") -> Tensor:
        """(J, B)."""
        if new := [place for place, row in enumerate(batch.indices) if row not in self.known]:
            rows = [batch.rows[place] for place in new]
            found = [self.margins(rows, model) for model in self.past]
            for column, place in enumerate(new):
                self.known[batch.indices[place]] = [margins[column] for margins in found]
        known = torch.tensor([self.known[row] for row in batch.indices], device=batch.chosen_logprobs.device)
        return known.view(len(batch.indices), len(self.past)).T

    def margins(self, rows: list[dict[str, Any]], model: Any) -> list[float]:
        """D of each row under a frozen policy."""
        chosen, rejected = (pair_rows.frozen_scores(self.run, rows, side, model, mean=True) for side in ("chosen", "rejected"))
        return [one - other for one, other in zip(chosen, rejected, strict=True)]

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        own = masked_row_mean(batch.chosen_logprobs, batch.chosen_mask) - masked_row_mean(batch.rejected_logprobs, batch.rejected_mask)
        reference = masked_row_mean(batch.chosen_reference, batch.chosen_mask) - masked_row_mean(batch.rejected_reference, batch.rejected_mask)
        past = self.past_margins(batch) if self.past else reference.new_zeros(0, len(reference))
        shares = reference.new_tensor(self.shares if self.past else [])
        against = compute_opponent_margin(reference, past, shares, self.config.rho)
        self.report(own, reference, past, shares, against)
        return squared_distance(own, against, self.config.eta)

    def report(self, own: Tensor, reference: Tensor, past: Tensor, shares: Tensor, against: Tensor) -> None:
        rho = self.config.rho if len(past) else 1.0
        self.log("h", (own - against).mean())
        self.log("target", 1 / (2 * self.config.eta))
        self.log("implicit_reward", self.config.reward_scale * (own - reference).mean())
        self.log("from_reference", rho * reference.mean())
        self.log("from_past", (1 - rho) * (shares[:, None] * past).sum(0).mean())
        self.log_histogram("h_of_pairs", own - against, -10.0, 10.0)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Margin over the opponents",
                (Series("mnpo/h", "h"), Series("mnpo/from_reference", "reference part"), Series("mnpo/from_past", "past policies part")),
                unit="nats per token",
                help="h is the policy's margin minus the population's; the two parts are subtracted. The target is 1 / (2 eta).",
            ),
            Panel("h of the pairs", (Series("mnpo/h_of_pairs"),), "histogram", unit="nats per token", low=-10.0, high=10.0),
        )
