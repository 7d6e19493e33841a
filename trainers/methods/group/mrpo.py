"""MRPO: right answers earn more, the wider the space their hidden states move through (arXiv 2602.02545); its second stage, our reading.

erank(W) = exp(entropy of the normalised singular values) of a window W of w consecutive last-layer states, not centred; rank(y) = the smallest over
the sliding windows of a response; R(y) = 1[right] (1 + alpha NormRank(y)) with NormRank the batch's ranks scaled to [0, 1]; then GRPO on R.
Differs from GRPO in the reward of right answers alone: a wrong answer never earns by wandering, so alpha = 0 is GRPO.

Read: the abstract and a third-party summary with formulas; no code of the authors was found. Ours: the last layer, NormRank over the batch, wrong
answers included in its range, and that other reward functions of the run add to R unchanged. A response shorter than the window is one window;
one without tokens has no rank and is left out of the range. The paper's window of 64 is for answers of 1,000 tokens.
The first stage (continuations orthogonal to the policy's own states, then SFT on those that are right) needs a teacher policy: only its measure,
``novelty``, is here. Costs one forward pass for the hidden states and an SVD a window: about x 1.15 of a GRPO step on the tiny policy.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.spectrum import exponential_entropy, singular_values
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch


def smallest_window_rank(states: Tensor, window: int) -> float:
    """(T, D) -> the smallest effective rank of ``window`` neighbours; of all of them where there are fewer, 0 without any."""
    if not len(states):
        return 0.0
    windows = states.unfold(0, min(window, len(states)), 1).mT  # (T - w + 1, w, D)
    return float(exponential_entropy(singular_values(windows)).amin())


def trajectory_ranks(hidden: Tensor, mask: Tensor, window: int) -> Tensor:
    """(B, T, D), (B, T) -> (B,): the policy's own tokens only."""
    ranks = [smallest_window_rank(states[kept], window) for states, kept in zip(hidden, mask.bool(), strict=True)]
    return torch.tensor(ranks, device=hidden.device)


def norm_rank(ranks: Tensor) -> Tensor:
    """(B,) -> (B,) in [0, 1] over the batch; ranks of 0 are missing and stay 0, as does everything where all are the same."""
    there = ranks > 0
    if not there.any():
        return torch.zeros_like(ranks)
    low, high = ranks[there].min(), ranks[there].max()
    return torch.where(there & (high > low), (ranks - low) / (high - low).clamp(min=1e-12), torch.zeros_like(ranks))


def rank_bonus(correct: Tensor, ranks: Tensor, alpha: float) -> Tensor:
    """(B,) bool, (B,) -> (B,): what a right answer earns for its rank."""
    return correct.to(ranks.dtype) * alpha * norm_rank(ranks)


def compute_state_novelty(states: Tensor, mean: Tensor, directions: Tensor) -> Tensor:
    """(M, D), (D,), (D, k) orthonormal -> (M,) in [0, 1]: share of each state's length outside the dominant directions (the first stage's Omega)."""
    centred = states - mean
    outside = centred - centred @ directions @ directions.mT
    return outside.norm(dim=1) / (centred.norm(dim=1) + 1e-12)


class Config(Strict):
    alpha: float = param(0.5, "What the batch's widest right answer earns on top; 0 is GRPO.", title="Rank bonus (alpha)", ge=0, le=10)
    window: int = param(8, "Tokens of a window; the paper's 64 goes with answers of 1,000 tokens.", title="Window", ge=2, le=4096)


class MRPO(Method):
    card = Card(
        name="mrpo",
        title="Manifold-reshaping policy optimisation",
        arxiv="2602.02545",
        system="MRPO",
        base="grpo",
        provenance="abstract",
        source="abstract; formulas and settings from a third-party summary of the sections",
        fit="core",
        idea="Training narrows the space a policy's thoughts move through. Paying right answers for the rank of their hidden states keeps it wide.",
        formula=(
            r"\rho(y) = \min_W \exp\left(-\sum_i p_i \log p_i\right), \quad p_i = \frac{\sigma_i(W)}{\sum_j \sigma_j(W)}",
            r"R(y) = 1_{right}\left(1 + \alpha\, \frac{\rho(y) - \min \rho}{\max \rho - \min \rho}\right)",
        ),
        reading="the layer, the normalisation over the batch and uncentred windows are ours; the first stage is left out",
        departures=(
            "The first stage, continuations orthogonal to the policy's own states, is left out; only its measure is here.",
            "A window is 8 tokens, where the paper has 64 for answers of 1,000 tokens.",
        ),
        claim=("mrpo/rank", "higher"),
    )
    Config = Config
    roles = {"rewards": "maps"}
    needs = frozenset({"hidden"})

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        assert batch.hidden is not None
        ranks = trajectory_ranks(batch.hidden, batch.mask, self.config.window).to(rewards.dtype)
        bonus = rank_bonus(batch.correct, ranks, self.config.alpha)
        self.log("rank", ranks.mean())
        self.log_histogram("ranks", ranks, 1.0, float(self.config.window))
        for name, chosen in (("right", batch.correct), ("wrong", ~batch.correct)):
            if chosen.any():
                self.log(f"rank_{name}", ranks[chosen].mean())
        self.log("bonus_share", bonus.sum() / (rewards + bonus).abs().sum().clamp(min=1e-6))
        return rewards + bonus

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Rank of the narrowest window",
                (Series("mrpo/rank", "all"), Series("mrpo/rank_right", "right"), Series("mrpo/rank_wrong", "wrong")),
                help="How many directions the hidden states of an answer use where they use the fewest.",
            ),
            Panel("Ranks of a batch", (Series("mrpo/ranks"),), "histogram", help="From 1 to the width of the window."),
            Panel("Share of the reward that is rank bonus", (Series("mrpo/bonus_share"),)),
        )
