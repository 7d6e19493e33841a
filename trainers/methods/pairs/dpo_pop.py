"""DPO-PoP: adaptive margins from preferences over preferences (arXiv 2509.22851).

An annotator, or a difference of scores, says which of two preference pairs is the stronger one. Let h(k) be the DPO margin of pair k, and let pair i
be stronger than pair j. The margin required of i is the one that j has already:

    m_i = clip(h_target(j), 0, m_max),    loss = -log sigmoid(h(i) - m_i) - log sigmoid(h(j)),

where the target policy is a Polyak average of the trained one, target <- tau target + (1 - tau) pi. Pairs that are never the stronger one have margin
0. This is our interpretation: only the abstract and public reviews were read (they confirm the clipped margin, the averaged target and the two
samplers); beta, m_max, tau and the number of partners are our choices. It is unclear whether the weaker pair's term belongs to the loss: ``weaker``
switches it.

It differs from DPO only in the margin; a fixed margin would be the same for every pair. The strength of a pair is the column ``strength`` or ``gap``
of its row, or ``partner`` (the number of the row that this one is stronger than), as annotators would label it; otherwise the difference between its
two answers, summed over all the task's reward functions. Pairs of equal strength are not compared. "random" draws couples of pairs and trains on the
stronger one, so strong pairs are seen more often; "iterative" goes through all pairs and gives each one partner. In addition to DPO's own passes, a
step has forward passes of the target, the reference and the policy on the weaker pairs: two to three times its time.
"""

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.data import pair_rows
from trainers.judges import rewards
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

Row = dict[str, Any]
COLUMNS = ("strength", "gap")


def adaptive_margin(weaker: Tensor, most: float) -> Tensor:
    """(B,) target margins of the weaker pairs -> (B,): the margins required of the stronger ones."""
    return weaker.detach().clamp(0.0, most)


def compute_polyak_average(target: Tensor, policy: Tensor, tau: float) -> Tensor:
    return tau * target + (1 - tau) * policy


def rank_values(values: Tensor) -> Tensor:
    """(K,) -> (K,): ranks from 0, averaged over equal values."""
    below, same = (values[:, None] > values).sum(1), (values[:, None] == values).sum(1)
    return below + (same - 1) / 2


def rank_correlation(one: Tensor, other: Tensor) -> Tensor:
    """Spearman's rank correlation; 0 if either has no variance."""
    a, b = (rank_values(values).double() for values in (one, other))
    a, b = a - a.mean(), b - b.mean()
    return (a * b).sum() / (a.norm() * b.norm()).clamp(min=1e-12)


def draw_couples(strengths: list[float], sampler: str, partners: int, rng: "random.Random") -> list[tuple[int, int | None]]:
    """(row, weaker row or None) of every training row."""
    count, made = len(strengths), list[tuple[int, int | None]]()
    if count == 1:
        return [(0, None)] * partners
    for place in range(count * partners):
        one = place % count if sampler == "iterative" else rng.randrange(count)
        other = (one + rng.randrange(1, count)) % count
        if sampler == "random" and strengths[other] > strengths[one]:
            one, other = other, one
        made.append((one, other if strengths[one] > strengths[other] else None))
    return made


class Config(Strict):
    max_margin: float = param(5.0, "Largest required margin (m_max); the paper's value was not found.", title="Max margin", ge=0)
    target: Literal["polyak", "policy"] = param(
        "polyak", "Policy whose margin of the weaker pair is used: a Polyak average, or the policy itself.", title="Target"
    )
    tau: float = param(
        0.99,
        "Decay of the average: larger values follow the policy more slowly; the paper's value was not found.",
        title="tau",
        advanced=True,
        ge=0,
        lt=1,
    )
    sampler: Literal["random", "iterative"] = param(
        "iterative", "iterative: every pair once, with a partner; random: the stronger one of two pairs drawn at random.", title="Pair sampling"
    )
    partners: int = param(1, "Partners per pair; the paper's number was not found.", title="Partners", advanced=True, ge=1, le=16)
    weaker: bool = param(True, "Also train on the weaker pair of each couple.", title="Weaker pair's term")


class DPOPoP(Method):
    card = Card(
        name="dpo-pop",
        title="Preference over preferences",
        arxiv="2509.22851",
        system="DPO-PoP",
        base="dpo",
        provenance="abstract",
        source="abstract and public reviews; the loss is assembled from them",
        fit="core",
        idea="Compare preference pairs by strength, and require the margin of a stronger pair to exceed the current margin of a weaker one.",
        formula=(
            r"m_i = \mathrm{clip}\left(h_{\bar\theta}(j), 0, m_{max}\right)",
            r"L = -\log \sigma\left(h_\theta(i) - m_i\right) - \log \sigma\left(h_\theta(j)\right)",
            r"\bar\theta \leftarrow \tau \bar\theta + (1 - \tau)\,\theta",
        ),
        reading="the loss is assembled from the abstract and the reviews; m_max, tau and the number of partners are our choices",
        departures=("It is unclear whether the weaker pair's term belongs to the loss; a setting switches it.",),
        claim=("dpo-pop/rank_correlation", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "arranges"}
    trains = frozenset({"dpo"})
    owns = frozenset({"pair loss"})
    excludes = {"ipo": "the ipo loss pulls a mean over tokens to a fixed target, which leaves no room for another margin"}

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.average: Any = None  # the target policy, from its first use
        self.saved: dict[str, Tensor] = {}  # its weights in a checkpoint that is being resumed
        self.margins = torch.empty(0)
        self.weaker_reference = torch.empty(0)

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        if run.attempt.spec.lora is not None and self.config.target == "polyak":
            fix = "set its target to policy, or train all weights"
            raise SpecError([Problem("methods", "dpo-pop", "the average of a policy in LoRA adapters is not kept", fix)])

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        strengths = self.strengths(rows, run)
        if any(isinstance(row.get("partner"), int) for row in rows):
            chosen = [(place, row.get("partner")) for place, row in enumerate(rows)]
        else:
            chosen = draw_couples(strengths, self.config.sampler, self.config.partners, run.rng("dpo-pop", "couples"))
        self.log("couples", sum(weaker is not None for _, weaker in chosen) / len(chosen))
        return [{**rows[one], "strength": strengths[one], "partner": None if other is None else rows[other]} for one, other in chosen]

    def strengths(self, rows: list[Row], run: "RunContext") -> list[float]:
        for column in COLUMNS:
            if all(isinstance(row.get(column), int | float) for row in rows):
                return [abs(float(row[column])) for row in rows]
        found = []
        for row, example in zip(rows, pair_rows.examples_of(rows, run), strict=True):
            scores = [
                rewards.score_all(run.task, pair_rows.join_message_texts(row[side]), example) if example else {} for side in ("chosen", "rejected")
            ]
            worth = [sum(value for value in side.values() if value is not None) for side in scores]
            found.append(abs(worth[0] - worth[1]))
        return found

    def coupled(self, batch: "PairBatch") -> list[int]:
        """Indices of the pairs in the batch that have a weaker partner."""
        return [place for place, partner in enumerate(batch.column("partner")) if partner is not None]

    @torch.no_grad()
    def pair_margins(self, batch: "PairBatch") -> Tensor | None:
        self.margins = torch.zeros(len(batch.rows), device=batch.chosen_logprobs.device)
        if places := self.coupled(batch):
            weaker = [batch.rows[place]["partner"] for place in places]
            self.weaker_reference = self.difference(weaker, self.run.reference)
            held = batch.beta * (self.difference(weaker, self.target()) - self.weaker_reference)
            self.margins[places] = adaptive_margin(held, self.config.max_margin)
            self.log("weaker_margin", held.mean())
        return self.margins

    def difference(self, rows: list[Row], model: Any) -> Tensor:
        """(B,) log-probability of chosen minus that of rejected."""
        return pair_rows.sum_side_logprobs(self.run, rows, "chosen", model) - pair_rows.sum_side_logprobs(self.run, rows, "rejected", model)

    def loss(self, batch: "PairBatch") -> Tensor | None:  # type: ignore[override]
        """The loss term of the weaker pairs; also logs metrics that need the scores."""
        self.report(batch)
        places = self.coupled(batch)
        if not self.config.weaker or not places:
            return None
        own = self.difference([batch.rows[place]["partner"] for place in places], None)
        return -logsigmoid(batch.beta * (own - self.weaker_reference)).sum() / len(batch.rows)

    def report(self, batch: "PairBatch") -> None:
        own = (batch.score + self.margins).detach()
        strengths = torch.tensor([float(value) for value in batch.column("strength", 0.0)])
        self.log("rank_correlation", rank_correlation(own.cpu(), strengths))
        self.log_histogram("margins", self.margins, 0.0, self.config.max_margin or 1.0)
        strong = strengths >= strengths.median()
        for name, which in (("strong", strong), ("weak", ~strong)):
            if which.any():
                self.log(f"accuracy_{name}", (own.cpu()[which] > 0).float().mean())

    def target(self) -> Any:
        """The Polyak average; it starts as the policy the run started from. None stands for the policy itself, if that is the target."""
        if self.config.target == "policy":
            return None
        if self.average is None:
            self.average = self.run.frozen("")
            if self.saved:
                self.average.load_state_dict(self.saved)
        return self.average

    def gradients(self, model: Any) -> None:
        """Once per step: the average follows the weights from the start of this step."""
        if self.config.target == "polyak":
            with torch.no_grad():
                for held, own in zip(self.target().parameters(), model.parameters(), strict=True):
                    held.copy_(compute_polyak_average(held, own, self.config.tau))

    def state(self) -> dict[str, Any]:
        return {"target": self.saved if self.average is None else {name: value.detach().cpu() for name, value in self.average.state_dict().items()}}

    def restore(self, state: dict[str, Any]) -> None:
        self.saved, self.average = dict(state["target"]), None

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Required margins of the stronger pairs",
                (Series("dpo-pop/margin", "all pairs"), Series("dpo-pop/weaker_margin", "margins of the weaker pairs", dashed=True)),
                help="Margin required of the stronger pair of a couple; 0 for a pair without a weaker partner.",
            ),
            Panel("Margins", (Series("dpo-pop/margins"),), "histogram", help="From 0 to the max margin."),
            Panel("Implicit gap vs strength", (Series("dpo-pop/rank_correlation"),), help="Spearman's rank correlation over the batch."),
            Panel("Accuracy by strength", (Series("dpo-pop/accuracy_strong", "strong pairs"), Series("dpo-pop/accuracy_weak", "weak pairs"))),
        )
