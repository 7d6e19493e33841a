"""Read the world: cross-entropy on what the world says, beside GRPO on what the policy says. Our own, after JOWA and the echo loss of prime-rl.

L = L_GRPO + alpha / |W| sum_{t in W} -log pi(y_t | y_<t)      W: tokens of the sampled batch inside a result of the world, its tags left out

The forward pass of GRPO has these log-probabilities already, so that a step takes no longer. Tokens of the world stay out of the policy's term and
of what that is divided by. The mean is over the sampled batch, however it is split. It differs from GRPO in this term; with alpha = 0 it is GRPO.

It teaches the policy to foresee results, and thereby to write them: what it makes up in place of a call earns nothing here, because the world does
not accept a text with other results than its own. ``written`` says how often it happens.

JOWA (arXiv 2410.00564) is not about language models: one transformer learns from recordings of games what the game does next and what actions are
worth. Only the shared weights for both are here. The term is that of prime-rl's echo algorithm for bodies of tool results.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.self_search import END_INFORMATION, INFORMATION, find_information

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch


def find_heard_tokens(batch: "RolloutBatch") -> Tensor:
    """(B, T) bool: tokens inside a result that the policy did not write, without the result's tags."""
    heard = torch.zeros_like(batch.mask, dtype=torch.bool)
    for row, text in enumerate(batch.texts):
        for start, end in find_information(text):
            heard[row] |= batch.span(row, start + len(INFORMATION), end - len(END_INFORMATION))
    return heard & (batch.mask == 0)


def has_written_result(batch: "RolloutBatch", row: int) -> bool:
    """Whether the policy has opened a result itself."""
    text, at, own = batch.texts[row], -1, batch.mask[row] > 0
    while (at := text.find(INFORMATION, at + 1)) >= 0:
        if (batch.span(row, at, at + len(INFORMATION)) & own).any():
            return True
    return False


def mean_of_batch(values: Tensor, heard: Tensor, count: int, slices: float) -> Tensor:
    """(B, T) of a micro-batch, ``heard`` (B, T) bool -> scalar: its part of the mean over the ``count`` heard tokens of the sampled batch."""
    return slices * (values * heard).sum() / max(1, count)


class Config(Strict):
    weight: float = param(0.1, "Weight of the cross-entropy on the world's words; 0: the base.", title="Weight (alpha)", ge=0, le=100)


class ReadTheWorld(Method):
    card = Card(
        name="read-the-world",
        title="Cross-entropy on the world's words",
        arxiv="",
        system="our own",
        base="grpo",
        provenance="abstract",
        source=(
            "our own, after the joint world and action model of JOWA (arXiv 2410.00564), of which we know the abstract;"
            " github PrimeIntellect-ai/prime-rl: orchestrator/algo/echo.py"
        ),
        fit="variant",
        idea="Train the policy to foresee what the world answers, on the same episodes that reinforce what it does.",
        formula=(r"L = L_{\mathrm{GRPO}} + \frac{\alpha}{|W|} \sum_{t \in W} -\log \pi_\theta(y_t \mid y_{<t})",),
        reading="that one policy is world model and actor alike, by a term of prime-rl for tool results",
        departures=(
            "JOWA learns from recordings of games and plans with the model; nothing but the shared model of world and actions is used.",
            "The weight of .1 is our choice; the term is a mean over the world's tokens of a sampled batch.",
            "Log-probabilities are those at the sampling temperature.",
        ),
        claim=("read-the-world/nll", "lower"),
        parallel=False,
    )
    Config = Config
    worlds = frozenset(
        {
            "booking",
            "entity_search",
            "graph",
            "interview",
            "paragraphs",
            "planned_search",
            "programs",
            "rewrites",
            "rooms",
            "search",
            "sums",
            "tables",
            "two_corpora",
        }
    )
    requires = (Requirement("task.options.alone", "differs from", True, "the policy writes all results itself: no words of a world are left"),)

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.source: RolloutBatch | None = None  # the sampled batch that ``heard`` belongs to
        self.heard, self.count = torch.zeros(0, 0, dtype=torch.bool), 0

    def find_heard(self, batch: "RolloutBatch") -> Tensor:
        if self.source is not batch:
            self.source, self.heard = batch, find_heard_tokens(batch) & ~batch.left_out[:, None]
            self.count = int(self.heard.sum())
        return self.heard

    def loss(self, batch: "LossBatch") -> Tensor | None:  # type: ignore[override]
        heard = batch.of(self.find_heard(batch.rollout))
        term = mean_of_batch(-batch.logprobs, heard, self.count, batch.slices)
        if batch.first_pass and self.count:
            self.log("nll", term)
            self.log("probability", mean_of_batch(batch.logprobs.detach().exp(), heard, self.count, batch.slices))
        return self.config.weight * term if self.config.weight else None

    def observe(self, batch: "RolloutBatch") -> None:
        self.find_heard(batch)
        self.log("heard", self.count / len(batch.texts))
        self.log("written", sum(has_written_result(batch, row) for row in range(len(batch.texts))) / len(batch.texts))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Cross-entropy of the world's words", (Series(f"{name}/nll", "mean"),), unit="nats"),
            Panel("Probability of the world's words", (Series(f"{name}/probability", "mean over tokens"),)),
            Panel("Results that the policy wrote itself", (Series(f"{name}/written", "share of the episodes"),), help="They earn nothing."),
        )
