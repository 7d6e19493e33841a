"""Questions of k hops: does the number of segments settle near k? Fewer miss the answer, more are for nothing."""

import torch

from bench.effect_cases import Case, Pairs, Quantity
from bench.equal_tokens import Curve, values_at_equal_tokens
from trainers.maths.advantages import z_score
from trainers.methods.group.cosmo import Config, apply_segment_budget

HOPS, MOST, GROUP, GROUPS, STEPS, LEARNING_RATE = (2, 3, 4), 8, 8, 8, 300, 1.0
RIGHT, SHORT = 0.9, 0.3  # probability of a right answer with at least k segments, and with fewer


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, True), trained(seed, False)
    return {
        "distance": (own[0], parent[0]),
        "accuracy": (own[1][-1][1], parent[1][-1][1]),
        "accuracy at tokens": values_at_equal_tokens(own[1], parent[1]),
    }


def trained(seed: int, method: bool) -> tuple[float, Curve]:
    """Expected distance of the trained policies' segments to k, and the expected share of right answers by segments written."""
    generator, config = torch.Generator().manual_seed(seed), Config()
    counts, logits = torch.arange(1, MOST + 1).float(), torch.zeros(len(HOPS), MOST)
    targets = torch.tensor(HOPS).float()
    rates = torch.where(counts >= targets[:, None], RIGHT, SHORT)  # (3, 8) of right answers
    curve, written = [(0.0, float(rates.mean()))], 0.0
    for _ in range(STEPS):
        probabilities = torch.softmax(logits, 1)
        chosen = torch.multinomial(probabilities, GROUP * GROUPS, replacement=True, generator=generator)  # (3, rows)
        needed = targets[:, None].expand(chosen.shape)
        chance = torch.where(counts[chosen] >= needed, RIGHT, SHORT)
        rewards = (torch.rand(chosen.shape, generator=generator) < chance).float()
        if method:
            every = torch.ones(chosen.shape, dtype=torch.bool)
            rewards = apply_segment_budget(rewards, counts[chosen], needed, every, config.tolerance, config.penalty)
        advantage = z_score(rewards.flatten(), GROUP).view_as(rewards)
        gradient = torch.zeros_like(logits).scatter_add_(1, chosen, advantage) - probabilities * advantage.sum(1, keepdim=True)
        logits = logits + LEARNING_RATE * gradient / chosen.shape[1]
        written += float(counts[chosen].sum())
        curve.append((written, float((torch.softmax(logits, 1) * rates).sum(1).mean())))
    return float((torch.softmax(logits, 1) * (counts - targets[:, None]).abs()).sum(1).mean()), curve


CASE = Case(
    method="cosmo",
    parent="grpo",
    claim="the number of segments comes nearer to the number of hops",
    quantities=(
        Quantity(
            "distance",
            "expected distance of the segments to the hops",
            "lower",
            0.25,
            "a quarter of a segment",
            by_construction="the reward pays for segments near the number of hops",
        ),
        Quantity("accuracy", "expected share of right answers after 300 updates", "higher", 0.01, "one more of a hundred answers"),
        Quantity(
            "accuracy at tokens", "expected share of right answers after as many segments written", "higher", 0.01, "one more of a hundred answers"
        ),
    ),
    problem="questions of 2 to 4 hops, a policy over 1 to 8 segments, 300 updates",
    measure=measure,
    launch={"base": "grpo"},
)
