"""Questions of k hops: does the number of segments settle near k? Fewer miss the answer, more are for nothing."""

import torch

from bench.effect_cases import Case
from trainers.advantages import z_score
from trainers.methods.group.cosmo import Config, budgeted

HOPS, MOST, GROUP, GROUPS, STEPS, LEARNING_RATE = (2, 3, 4), 8, 8, 8, 300, 1.0
RIGHT, SHORT = 0.9, 0.3  # probability of a right answer with at least k segments, and with fewer


def measure(seed: int) -> tuple[float, float]:
    return distance(seed, True), distance(seed, False)


def distance(seed: int, method: bool) -> float:
    """Expected distance of the trained policies' segments to k."""
    generator, config = torch.Generator().manual_seed(seed), Config()
    counts, logits = torch.arange(1, MOST + 1).float(), torch.zeros(len(HOPS), MOST)
    targets = torch.tensor(HOPS).float()
    for _ in range(STEPS):
        probabilities = torch.softmax(logits, 1)
        chosen = torch.multinomial(probabilities, GROUP * GROUPS, replacement=True, generator=generator)  # (3, rows)
        needed = targets[:, None].expand(chosen.shape)
        chance = torch.where(counts[chosen] >= needed, RIGHT, SHORT)
        rewards = (torch.rand(chosen.shape, generator=generator) < chance).float()
        if method:
            every = torch.ones(chosen.shape, dtype=torch.bool)
            rewards = budgeted(rewards, counts[chosen], needed, every, config.tolerance, config.penalty)
        advantage = z_score(rewards.flatten(), GROUP).view_as(rewards)
        gradient = torch.zeros_like(logits).scatter_add_(1, chosen, advantage) - probabilities * advantage.sum(1, keepdim=True)
        logits = logits + LEARNING_RATE * gradient / chosen.shape[1]
    return float((torch.softmax(logits, 1) * (counts - targets[:, None]).abs()).sum(1).mean())


CASE = Case(
    method="cosmo",
    parent="grpo",
    claim="the number of segments comes nearer to the number of hops",
    quantity="expected distance of the segments to the hops",
    direction="lower",
    problem="questions of 2 to 4 hops, a policy over 1 to 8 segments, 300 updates",
    measure=measure,
    launch={"base": "grpo"},
)
