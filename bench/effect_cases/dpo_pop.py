"""Pairs with known gaps: labels of which pair is the stronger one, and nothing else about the gaps, make implicit margins rank them better.

A small network scores answers by eight features; its score stands for beta log pi / pi_ref.
"""

import random

import torch
from torch.nn.functional import logsigmoid

from bench.effect_cases import Case, Pairs, Quantity
from trainers.methods.pairs.dpo_pop import adaptive_margin, compute_polyak_average, draw_couples, rank_correlation

PAIRS, TESTED, FEATURES, STEPS, BATCH, TAU = 400, 500, 8, 400, 64, 0.9


def pairs(count: int, truth: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Features (count, 8) of chosen and rejected, and their gap (count,) in true worth, which is not linear in the features."""
    both = torch.randn(2, count, FEATURES, generator=generator)
    worth = torch.tanh(both @ truth[0]) + 2 * torch.tanh(both @ truth[1])
    order = worth[0] >= worth[1]
    chosen, rejected = torch.where(order[:, None], both[0], both[1]), torch.where(order[:, None], both[1], both[0])
    return chosen, rejected, (worth[0] - worth[1]).abs()


def network(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))


def rank(seed: int, with_margins: bool) -> float:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(2, FEATURES, generator=generator)
    chosen, rejected, gap = pairs(PAIRS, truth, generator)
    model, target = network(seed), network(seed)
    margin_of = lambda net, rows: (net(chosen[rows]) - net(rejected[rows]))[:, 0]  # noqa: E731
    made, optimiser = draw_couples(gap.tolist(), "iterative", 1, random.Random(seed)), torch.optim.Adam(model.parameters(), lr=3e-3)
    weaker = torch.tensor([one if other is None else other for one, other in made])
    coupled = torch.tensor([other is not None for _, other in made])
    for _ in range(STEPS):
        rows = torch.randint(PAIRS, (BATCH,), generator=generator)
        own, other = margin_of(model, rows), margin_of(model, weaker[rows])
        with torch.no_grad():
            margins = adaptive_margin(margin_of(target, weaker[rows]), 5.0) * coupled[rows]
        # The parent sees the same pairs as often: without the margin, not without the weaker pair.
        loss = -logsigmoid(own - (margins if with_margins else 0.0)).mean() - (logsigmoid(other) * coupled[rows]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for held, moved in zip(target.parameters(), model.parameters(), strict=True):
                held.copy_(compute_polyak_average(held, moved, TAU))
    chosen, rejected, gap = pairs(TESTED, truth, generator)
    with torch.no_grad():
        return float(rank_correlation((model(chosen) - model(rejected))[:, 0], gap))


def measure(seed: int) -> Pairs:
    return {"rank correlation": (rank(seed, True), rank(seed, False))}


CASE = Case(
    method="dpo-pop",
    parent="dpo",
    claim="implicit margins rank the true gaps of unseen pairs better",
    quantities=(
        Quantity(
            "rank correlation",
            "Spearman's rank correlation of margin and gap, 500 unseen pairs",
            "higher",
            0.02,
            "below that, a few neighbours of 500 change places",
        ),
    ),
    problem="400 pairs with known gaps, small network, 400 steps",
    measure=measure,
    launch={"trainer": "dpo"},
)
