"""EVOL-RL: agreement with the majority answer decides the sign of the reward, novelty of the reasoning its size (arXiv 2509.15194).

The most frequent of a group's valid answers is the pseudo-label. s is the cosine similarity of two reasoning texts, clipped to [0, 1]; u_i = 1 -
(mean of s to completions with the same verdict + max of s to any other) / 2; n_i is u_i scaled to [0, 1] within its verdict (1 for a verdict with one
member, 1/2 if all are equal). R = 0.5 + 0.5 n for the majority, -1 + 0.5 n against it, -1 without a valid answer. If the group has at most one valid
answer, all completions get -1. Invalid answers are excluded from every mean and maximum; an earlier summary included them in "any group" and gave a
single valid answer 1. Differs from GRPO in the reward, which needs no label; ``label`` "gold" uses the verifier instead of the majority.

The higher upper clip of some of the authors' runs (0.28; off in the script, although an earlier summary has it as the default) is set in the base;
the entropy bonus is part of this method.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.similarity import compute_cosines, ngram_vectors
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import ANSWER
from trainers.texts.spans import extract_answer, thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch


def find_majority_answer(answers: Sequence[str | None]) -> str | None:
    """The most frequent answer; ties go to the text that sorts first; None if there is no answer."""
    votes = Counter(answer for answer in answers if answer)
    return min(votes, key=lambda answer: (-votes[answer], answer)) if votes else None


def compute_working_novelty(similarity: Tensor, verdict: Tensor) -> Tensor:
    """(M, M), (M,) bool -> (M,): u, one minus half the mean similarity within the verdict and half the maximum over all others."""
    alone = torch.eye(len(verdict), dtype=torch.bool, device=similarity.device)
    peers = (verdict[:, None] == verdict[None, :]) & ~alone  # (M, M)
    mean = (similarity * peers).sum(1) / peers.sum(1).clamp(min=1)
    highest = similarity.masked_fill(alone, -1.0).amax(1).clamp(min=0.0)
    return 1 - (mean + highest) / 2


def scaled_within(novelties: Tensor, verdict: Tensor) -> Tensor:
    """(M,), (M,) bool -> (M,): scaled to [0, 1] within each verdict; 1 for a verdict with one member, 1/2 if all are equal."""
    made = torch.full_like(novelties, 0.5)
    for side in (verdict, ~verdict):
        own = novelties[side]
        if len(own) == 1:
            made[side] = 1.0
        elif len(own) > 1 and own.amax() - own.amin() > 1e-6:
            made[side] = (own - own.amin()) / (own.amax() - own.amin())
    return made


def compute_novelty_rewards(similarity: Tensor, verdict: Tensor, valid: Tensor, band: float = 0.5) -> Tensor:
    """(G, G), (G,) bool, (G,) bool -> (G,): the reward of one group. ``band``: how much of the reward novelty decides."""
    rewards = similarity.new_full((len(verdict),), -1.0)
    if int(valid.sum()) <= 1:
        return rewards
    own = verdict[valid]
    share = scaled_within(compute_working_novelty(similarity[valid][:, valid], own), own)
    rewards[valid] = torch.where(own, 0.5, -1.0) + band * share
    return rewards


class Config(Strict):
    label: Literal["majority", "gold"] = param("majority", "Source of the sign: the group's most frequent answer, or the task's verifier.")
    band: float = param(0.5, "How much of the reward novelty decides; 0 is majority voting alone.", title="Novelty band", ge=0, le=0.5)
    entropy_weight: float = param(0.0, "Weight of the entropy bonus; the authors use 0.001 to 0.005 where they have one.", ge=0, le=10)


class EvolRL(Method):
    card = Card(
        name="evol-rl",
        title="Majority for selection, novelty for variation",
        arxiv="2509.15194",
        system="EVOL-RL",
        base="grpo",
        provenance="code",
        source="github YujunZhou/EVOL-RL: workers/reward_manager/semantic_novelty.py, examples/labelfree/evol_rl.sh; arXiv id recalled",
        fit="core",
        idea=(
            "Learn without labels: reward agreement with the group's majority answer, and most of all majority completions with different reasoning."
        ),
        formula=(
            r"u_i = 1 - \frac{1}{2} \mathrm{mean}_{j \in g(i)}\, s_{ij} - \frac{1}{2} \max_{j \ne i} s_{ij}",
            r"n_i = \frac{u_i - \min_{g} u}{\max_{g} u - \min_{g} u}",
            r"R_i = 0.5 + 0.5\, n_i \quad \mathrm{or} \quad -1 + 0.5\, n_i",
        ),
        departures=(
            "The reasoning is embedded with hashed character trigrams instead of a 4B embedding model.",
            "The group votes on itself; the paper votes with 64 samples and trains on 32 of them.",
            "An answer is valid if it is not empty; the authors' code requires a digit.",
            "Ties go to the text that sorts first.",
        ),
        claim=("entropy", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes"}
    owns = frozenset({"labels"})

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        answers = [extract_answer(text) for text in batch.texts]
        made = list[Tensor]()
        for start in range(0, len(answers), batch.group_size):
            rows = slice(start, start + batch.group_size)
            made.append(self.group(batch, rows, answers[rows]))
        self.log("valid", sum(bool(answer) for answer in answers) / len(answers))
        return torch.cat(made).to(rewards)

    def group(self, batch: "RolloutBatch", rows: slice, answers: Sequence[str | None]) -> Tensor:
        """(G,) on the CPU."""
        right, valid = batch.correct[rows].cpu(), torch.tensor([bool(answer) for answer in answers])
        elected = find_majority_answer(answers)
        with_majority = torch.tensor([answer is not None and answer == elected for answer in answers])
        self.log("majority_share", with_majority.float().mean())
        if elected is not None:
            self.log("majority_right", float(right[with_majority].any()))
        similarity = compute_cosines(ngram_vectors([extract_working(text) for text in batch.texts[rows]]))
        self.log("similarity", similarity[valid][:, valid].mean() if valid.any() else 0.0)
        return compute_novelty_rewards(similarity, right if self.config.label == "gold" else with_majority, valid, self.config.band)

    def loss(self, batch: "LossBatch") -> Tensor | None:  # type: ignore[override]
        return -self.config.entropy_weight * batch.entropies if self.config.entropy_weight else None

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Majority vs correct answer",
                (
                    Series(f"{name}/majority_share", "majority share"),
                    Series(f"{name}/majority_right", "majority is correct"),
                    Series(f"{name}/valid", "valid answers", dashed=True),
                ),
                help="The verifier's judgement is only plotted, not used in training.",
            ),
            Panel(
                "Diversity",
                (Series(f"{name}/similarity", "similarity of reasoning"), Series("entropy", "entropy")),
                help="Without the novelty reward, diversity and entropy collapse.",
            ),
        )


def extract_working(text: str) -> str:
    """The reasoning before the answer."""
    span = thought_span(text)
    return text[slice(*span)] if span else text.partition(ANSWER)[0]
