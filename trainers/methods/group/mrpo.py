"""MRPO: correct completions earn more reward if their hidden states span a larger space (arXiv 2602.02545); its second stage, our interpretation.

erank(W) = exp(entropy of the normalised singular values) of a window W of w consecutive last-layer states, not centred; rank(y) is the smallest over
the sliding windows of a response; R(y) = 1[right] (1 + alpha NormRank(y)), where NormRank is the batch's ranks scaled to [0, 1]; then GRPO on R. It
differs from GRPO only in the reward of correct responses: a wrong one never earns a rank bonus. alpha = 0 is GRPO.

Sources: the abstract and a third-party summary with formulas; we found no code by the authors. Our choices: the last layer, NormRank over the batch,
including wrong responses in its range, and adding the run's other reward functions to R unchanged. A response shorter than the window is a single
window; one without tokens has no rank and is excluded from the range. The paper's window of 64 is for responses of 1,000 tokens. The first stage
(continuations orthogonal to the policy's own states, then SFT on the correct ones) needs a teacher policy: only its measure, ``novelty``, is
implemented. It costs one forward pass for the hidden states and one SVD per window: about 1.15 times a GRPO step on the tiny policy.
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
    """(T, D) -> the smallest effective rank of any ``window`` consecutive states; of all states if there are fewer; 0 without any."""
    if not len(states):
        return 0.0
    windows = states.unfold(0, min(window, len(states)), 1).mT  # (T - w + 1, w, D)
    return float(exponential_entropy(singular_values(windows)).amin())


def trajectory_ranks(hidden: Tensor, mask: Tensor, window: int) -> Tensor:
    """(B, T, D), (B, T) -> (B,): the policy's own tokens only."""
    ranks = [smallest_window_rank(states[kept], window) for states, kept in zip(hidden, mask.bool(), strict=True)]
    return torch.tensor(ranks, device=hidden.device)


def norm_rank(ranks: Tensor) -> Tensor:
    """(B,) -> (B,) in [0, 1] over the batch; ranks of 0 are missing values and stay 0; all are 0 if all ranks are equal."""
    there = ranks > 0
    if not there.any():
        return torch.zeros_like(ranks)
    low, high = ranks[there].min(), ranks[there].max()
    return torch.where(there & (high > low), (ranks - low) / (high - low).clamp(min=1e-12), torch.zeros_like(ranks))


def rank_bonus(correct: Tensor, ranks: Tensor, alpha: float) -> Tensor:
    """(B,) bool, (B,) -> (B,): bonus of correct completions for their rank."""
    return correct.to(ranks.dtype) * alpha * norm_rank(ranks)


def compute_state_novelty(states: Tensor, mean: Tensor, directions: Tensor) -> Tensor:
    """(M, D), (D,), (D, k) orthonormal -> (M,) in [0, 1]: share of each state's norm outside the dominant directions (Omega of the first stage)."""
    centred = states - mean
    outside = centred - centred @ directions @ directions.mT
    return outside.norm(dim=1) / (centred.norm(dim=1) + 1e-12)


class Config(Strict):
    alpha: float = param(
        0.5, "Bonus of the correct completion with the highest rank in the batch; 0 is GRPO.", title="Rank bonus (alpha)", ge=0, le=10
    )
    window: int = param(8, "Window length in tokens; the paper's 64 is for completions of 1,000 tokens.", title="Window", ge=2, le=4096)


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
        idea="Training shrinks the space spanned by a policy's hidden states; a rank bonus for correct completions keeps it wide.",
        formula=(
            r"\rho(y) = \min_W \exp\left(-\sum_i p_i \log p_i\right), \quad p_i = \frac{\sigma_i(W)}{\sum_j \sigma_j(W)}",
            r"R(y) = 1_{right}\left(1 + \alpha\, \frac{\rho(y) - \min \rho}{\max \rho - \min \rho}\right)",
        ),
        reading="the layer, the normalisation over the batch and the uncentred windows are our choices; the first stage is not implemented",
        departures=(
            "The first stage (continuations orthogonal to the policy's own states) is not implemented; only its measure is.",
            "The window is 8 tokens; the paper uses 64 for completions of 1,000 tokens.",
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
                "Lowest window rank",
                (Series("mrpo/rank", "all"), Series("mrpo/rank_right", "right"), Series("mrpo/rank_wrong", "wrong")),
                help="Effective number of directions of the hidden states, in the window of a completion where it is lowest.",
            ),
            Panel("Ranks in a batch", (Series("mrpo/ranks"),), "histogram", help="From 1 to the window length."),
            Panel("Rank bonus as a share of the reward", (Series("mrpo/bonus_share"),)),
        )
