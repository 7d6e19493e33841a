"""DPO-PoP: adaptive margins from preferences over preferences (arXiv 2509.22851).

Somebody, or a difference of scores, says which of two preference pairs is the stronger one. With h(k) the DPO margin of pair k and pair i stronger
than pair j, the margin that i has to beat is the one j has already:

    m_i = clip(h_target(j), 0, m_max),    loss = -log sigmoid(h(i) - m_i) - log sigmoid(h(j)),

where the target policy is a Polyak average of the trained one, target <- tau target + (1 - tau) pi. Pairs that are never the stronger one keep
margin 0. Our reading: only the abstract and public reviews were read (they confirm the clipped margin, the averaged target and the two samplers);
beta, m_max, tau and the number of partners are ours, and whether the weaker pair's term belongs to the loss is open: ``weaker`` switches it.

Differs from DPO in the margin alone; a fixed margin is the same for every pair. Strength: the column ``strength`` or ``gap`` of the rows; ``partner``
(number of the row that this one is stronger than), as people would label it; else the difference of all the task's reward functions between the two
answers. Pairs of equal strength are no label. "random" draws couples and trains on the stronger of each, so strong pairs are seen more often;
"iterative" goes through all pairs and gives each one partner. A step has a forward pass of the target, of the reference and of the policy on the
weaker pairs besides DPO's own: two to three times its time.
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
    """(B,) target margins of the weaker pairs -> (B,): what the stronger ones have to beat."""
    return weaker.detach().clamp(0.0, most)


def compute_polyak_average(target: Tensor, policy: Tensor, tau: float) -> Tensor:
    return tau * target + (1 - tau) * policy


def rank_values(values: Tensor) -> Tensor:
    """(K,) -> (K,): places from 0, those of equal values averaged."""
    below, same = (values[:, None] > values).sum(1), (values[:, None] == values).sum(1)
    return below + (same - 1) / 2


def rank_correlation(one: Tensor, other: Tensor) -> Tensor:
    """Spearman's; 0 where either has no spread."""
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
    max_margin: float = param(5.0, "Largest margin (m_max); the paper's was not found.", title="Largest margin", ge=0)
    target: Literal["polyak", "policy"] = param(
        "polyak", "Whose margin of the weaker pair counts: an average of the policy, or its own.", title="Target"
    )
    tau: float = param(0.99, "How slowly the average follows the policy; the paper's was not found.", title="tau", advanced=True, ge=0, lt=1)
    sampler: Literal["random", "iterative"] = param(
        "iterative", "iterative: every pair once, with a partner; random: the stronger one of couples drawn at random.", title="Couples"
    )
    partners: int = param(1, "Partners of each pair; the paper's number was not found.", title="Partners", advanced=True, ge=1, le=16)
    weaker: bool = param(True, "Train on the weaker pair of each couple too.", title="Weaker pair's term")


class DPOPoP(Method):
    card = Card(
        name="dpo-pop",
        title="Preference over preferences",
        arxiv="2509.22851",
        system="DPO-PoP",
        base="dpo",
        provenance="abstract",
        source="abstract and public reviews; the loss is put together from them",
        fit="core",
        idea="Know which of two preferences is the stronger one, and ask its margin to be larger than the weaker one's is now.",
        formula=(
            r"m_i = \mathrm{clip}\left(h_{\bar\theta}(j), 0, m_{max}\right)",
            r"L = -\log \sigma\left(h_\theta(i) - m_i\right) - \log \sigma\left(h_\theta(j)\right)",
            r"\bar\theta \leftarrow \tau \bar\theta + (1 - \tau)\,\theta",
        ),
        reading="the loss is ours from the abstract and the reviews; m_max, tau and the number of partners are ours",
        departures=("Whether the weaker pair's term belongs to the loss is open; a setting switches it.",),
        claim=("dpo-pop/rank_correlation", "higher"),
    )
    Config = Config
    roles = {"data": "arranges"}
    trains = frozenset({"dpo"})
    owns = frozenset({"pair loss"})
    excludes = {"ipo": "its margin is a mean over tokens with a fixed aim, which leaves no room for another one"}

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
        """Places of the batch whose pair has a weaker one."""
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
        """(B,) log-probability of chosen less that of rejected."""
        return pair_rows.sum_side_logprobs(self.run, rows, "chosen", model) - pair_rows.sum_side_logprobs(self.run, rows, "rejected", model)

    def loss(self, batch: "PairBatch") -> Tensor | None:  # type: ignore[override]
        """The weaker pairs' own term, and what is known once the scores are."""
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
        """The average; it begins as the policy the run starts from. None, the policy itself, where that is the target."""
        if self.config.target == "policy":
            return None
        if self.average is None:
            self.average = self.run.frozen("")
            if self.saved:
                self.average.load_state_dict(self.saved)
        return self.average

    def gradients(self, model: Any) -> None:
        """Once a step: the average follows the weights that this step began with."""
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
                "Margins of the stronger pairs",
                (Series("dpo-pop/margin", "all pairs"), Series("dpo-pop/weaker_margin", "the weaker pairs' own", dashed=True)),
                help="What the stronger pair of a couple has to beat; 0 where a pair has no weaker partner.",
            ),
            Panel("Margins", (Series("dpo-pop/margins"),), "histogram", help="From 0 to the largest margin."),
            Panel("Implicit gap against strength", (Series("dpo-pop/rank_correlation"),), help="Spearman's rank correlation over the batch."),
            Panel("Accuracy by strength", (Series("dpo-pop/accuracy_strong", "strong pairs"), Series("dpo-pop/accuracy_weak", "weak pairs"))),
        )
