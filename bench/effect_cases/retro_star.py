"""Retro* on synthetic relevance: a softmax policy over scores reads a noisy overlap; do the scores of one document agree more?"""

import torch
from torch import Tensor

from bench.effect_cases import Case
from trainers.advantages import z_score
from trainers.methods.group.retro_star import Config, inter, intra

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


def spread(seed: int, alpha: float) -> float:
    """Deviation of the scores of one document, after training."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.zeros(len(BUMPS), len(LEVELS), requires_grad=True)
    optimiser = torch.optim.Adam([weights], RATE)
    for _ in range(STEPS):
        overlap, queries, relevant = draw(generator)
        choice = (features(overlap) @ weights).log_softmax(1)
        drawn = torch.multinomial(choice.detach().exp(), GROUP, replacement=True, generator=generator)  # (D, G)
        scores = LEVELS[drawn]
        order = inter(scores.flatten(), queries.repeat_interleave(GROUP), relevant.repeat_interleave(GROUP))
        rewards = alpha * intra(scores, Config().tau).flatten() + (1 - alpha) * order
        loss = -(z_score(rewards, GROUP).view_as(scores) * choice.gather(1, drawn)).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    overlap, _, _ = draw(torch.Generator().manual_seed(1000 + seed))
    odds = (features(overlap) @ weights.detach()).softmax(1)
    mean = (odds * LEVELS).sum(1, keepdim=True)
    return float((odds * (LEVELS - mean) ** 2).sum(1).sqrt().mean())


def measure(seed: int) -> tuple[float, float]:
    return spread(seed, Config().alpha), spread(seed, 0.0)


CASE = Case(
    method="retro-star",
    parent="grpo",
    claim="With the reward for consistency, the scores of one document agree more than with the reward for order alone.",
    quantity="deviation of a document's scores after 200 steps (points of 100)",
    direction="lower",
    problem="synthetic relevance, softmax policy over 21 scores, GRPO on the order alone as parent",
    measure=measure,
    launch={"base": "grpo"},
)
