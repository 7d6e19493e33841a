"""Marginal gain: a right answer is paid for what it adds to the right answers of its group. Our own method, after an idea of AlphaGen (KDD 2023).

v(S) = log2 det(I + K_S),  K_ij = how alike the texts of i and j are      S: the right completions of a group
g_i = v(S) - v(S without i)  in (0, 1]
r_i <- r_i - lam (1 - g_i)   for right completions; others keep their reward

A right answer unlike all others gains 1 and keeps its reward; one of m equal answers gains log2((m + 1) / m), .58 of two, .17 of eight: never
nothing, so that being right always pays. If all right answers are equally alike, they lose the same, and the advantages of a group without wrong ones
are 0, as in GRPO. It differs from GRPO in the reward; with lam = 0 it is GRPO.

AlphaGen is not about language models: it pays a formula for what it adds to a pool of formulas that together predict returns of stocks. Only that
idea is here, with a group for the pool; the authors' code pays the value of the whole pool with the new formula in it. Where rewards of right answers
are far from 1, lam is to be scaled alike.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.similarity import compute_cosines, ngram_vectors
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch


def compute_marginal_gains(alike: Tensor) -> Tensor:
    """(M, M) kernel, positive semidefinite with ones on its diagonal -> (M,) in (0, 1]: what each member adds to log2 det(I + K)."""
    volume = torch.eye(len(alike), dtype=torch.float64, device=alike.device) + alike.double()
    return -torch.linalg.inv(volume).diagonal().log2().to(alike.dtype)  # det without i / det = the inverse's entry (i, i)


def compare_texts(texts: Sequence[str], by: str) -> Tensor:
    """(M, M): cosines of trigrams, or 1 for the same text and 0 for any other."""
    if by == "trigrams":
        return compute_cosines(ngram_vectors(texts)).fill_diagonal_(1.0)
    return torch.tensor([[float(one == other) for other in texts] for one in texts])


class Config(Strict):
    weight: float = param(
        0.5, "What a right answer can lose where others of its group are like it; 0: the base.", title="Weight (lambda)", ge=0, le=10
    )
    alike: Literal["trigrams", "same text"] = param(
        "trigrams", "How alike two answers are: a share of common character trigrams, or whether their texts are the same.", title="Likeness"
    )


class MarginalGain(Method):
    card = Card(
        name="marginal-gain",
        title="Reward for what a right answer adds",
        arxiv="",
        system="our own",
        base="grpo",
        provenance="abstract",
        source="our own, after the pool of AlphaGen (KDD 2023; github RL-MLDM/alphagen: alphagen/models/linear_alpha_pool.py)",
        fit="variant",
        idea="Pay a right answer for what it adds to the right answers of its group, so that the policy keeps several ways to be right.",
        formula=(
            r"v(S) = \log_2 \det\left(I + K_S\right), \quad g_i = v(S) - v(S \setminus i)",
            r"r_i \leftarrow r_i - \lambda\,(1 - g_i) \quad \text{for right answers}",
        ),
        reading="the pool is the group's right answers, its value a log-determinant of how alike they are",
        departures=(
            "AlphaGen writes formulas that predict stock returns; nothing but the reward by what a member adds to a pool is used.",
            "The pool is one group; AlphaGen keeps it through the whole run.",
            "The difference is paid; the authors' code pays the value of the pool with the new member.",
        ),
        claim=("marginal-gain/different", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"rewards": "maps"}
    idle = {"rewards": ("weight", 0.0)}

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        made, right = rewards.clone(), batch.correct.tolist()
        for start in range(0, len(right), batch.group_size):
            places = [row for row in range(start, start + batch.group_size) if right[row]]
            texts = [batch.texts[row].strip() for row in places]
            self.log("right", len(places) / batch.group_size)
            self.log("different", float(len(set(texts))))
            if places:
                gains = compute_marginal_gains(compare_texts(texts, self.config.alike))
                self.log("gain", gains.mean())
                made[places] -= self.config.weight * (1 - gains).to(made)
        return made

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Different right answers of a group", (Series(f"{name}/different", "texts"),)),
            Panel(
                "Gain of right answers",
                (Series(f"{name}/gain", "mean gain"), Series(f"{name}/right", "share of right answers", dashed=True)),
                help="1: unlike all other right answers of its group.",
            ),
        )
