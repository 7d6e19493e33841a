"""Retro* on synthetic relevance: a softmax policy over scores reads a noisy overlap; do the scores of one document agree more?"""

import torch
from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.maths.advantages import z_score
from trainers.methods.group.retro_star import Config, compute_agreement_rewards, compute_order_rewards

LEVELS = torch.arange(0.0, 101.0, 5.0)  # scores that the policy chooses from
QUERIES, DOCUMENTS, GROUP, STEPS, RATE = 16, 4, 8, 200, 0.05  # documents of a query: half of them relevant
BUMPS = torch.linspace(0, 1, 8)


def features(overlap: Tensor) -> Tensor:
    """(D,) -> (D, 8)."""
    return torch.exp(-(((overlap[:, None] - BUMPS) / 0.15) ** 2))


def draw(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """(D,) overlaps, queries and relevance: relevant documents overlap more, but not always."""
    relevant = torch.arange(QUERIES * DOCUMENTS) % 2 == 0
    overlap = (0.4 + 0.2 * relevant + 0.15 * torch.randn(QUERIES * DOCUMENTS, generator=generator)).clamp(0, 1)
    return overlap, torch.arange(QUERIES * DOCUMENTS) // DOCUMENTS, relevant


def trained(seed: int, alpha: float) -> dict[str, float]:
    """Deviation of the scores of one document, and how well one score of each orders new documents, after training."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.zeros(len(BUMPS), len(LEVELS), requires_grad=True)
    optimiser = torch.optim.Adam([weights], RATE)
    for _ in range(STEPS):
        overlap, queries, relevant = draw(generator)
        choice = (features(overlap) @ weights).log_softmax(1)
        drawn = torch.multinomial(choice.detach().exp(), GROUP, replacement=True, generator=generator)  # (D, G)
        scores = LEVELS[drawn]
        order = compute_order_rewards(scores.flatten(), queries.repeat_interleave(GROUP), relevant.repeat_interleave(GROUP))
        rewards = alpha * compute_agreement_rewards(scores, Config().tau).flatten() + (1 - alpha) * order
        loss = -(z_score(rewards, GROUP).view_as(scores) * choice.gather(1, drawn)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    overlap, queries, relevant = draw(torch.Generator().manual_seed(1000 + seed))
    odds = (features(overlap) @ weights.detach()).softmax(1)
    mean = (odds * LEVELS).sum(1, keepdim=True)
    spread = float((odds * (LEVELS - mean) ** 2).sum(1).sqrt().mean())
    return {"spread": spread, "order": order_by_one_score(odds, queries, relevant)}


def order_by_one_score(odds: Tensor, queries: Tensor, relevant: Tensor) -> float:
    """Of (D, L) probabilities of scores: the chance that a relevant document gets more than another of its query, a tie counted half."""
    above = torch.tril(torch.ones(len(LEVELS), len(LEVELS)), -1) + 0.5 * torch.eye(len(LEVELS))
    chance = odds @ above @ odds.T  # (D, D): of the row's score being above the column's
    return float(chance[(queries[:, None] == queries) & relevant[:, None] & ~relevant].mean())


def measure(seed: int) -> Pairs:
    return paired(trained(seed, Config().alpha), trained(seed, 0.0))


CASE = Case(
    method="retro-star",
    parent="grpo",
    claim="With the reward for consistency, the scores of one document agree more than with the reward for order alone.",
    quantities=(
        Quantity(
            "spread",
            "deviation of a document's scores after 200 steps (points of 100)",
            "lower",
            2.0,
            "two points of a scale of 100",
            by_construction="the reward pays for scores near the mean of their document",
        ),
        Quantity(
            "order",
            "how often a relevant document has the higher score of two of its query, one sampled score each, on new documents",
            "higher",
            0.01,
            "one more of a hundred pairs of documents",
        ),
    ),
    problem="synthetic relevance, softmax policy over 21 scores, GRPO on the order alone as parent",
    measure=measure,
    launch={"base": "grpo"},
    changed="the order by mean scores was the same on both sides, so the order by one score is compared",
)
