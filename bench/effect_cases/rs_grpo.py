"""The paper's bandit: 100 arms, a good peak at 75 where the policy starts, a better one at 40. The mean reward stays at 75, a soft maximum leaves."""

import torch

from bench.effect_cases import Case, Pairs, Quantity
from trainers.methods.group.rs_grpo import risk_sensitive

ARMS, BATCH, STEPS, LEARNING_RATE = 100, 16, 10_000, 0.1


def rewards() -> torch.Tensor:
    """(100,) peaks 0.9 at arm 40 and 0.5 at arm 75 with deviation 5, plus 0.1."""
    arms = torch.arange(ARMS, dtype=torch.float32)
    return 0.1 + 0.9 * torch.exp(-((arms - 40) ** 2) / 50) + 0.5 * torch.exp(-((arms - 75) ** 2) / 50)


def final_reward(seed: int, risk: float) -> float:
    generator = torch.Generator().manual_seed(seed)
    worth = rewards()
    logits = (torch.exp(-((torch.arange(ARMS, dtype=torch.float32) - 75) ** 2) / 50) + 0.1).log()
    for _ in range(STEPS):
        probabilities = torch.softmax(logits, 0)
        chosen = torch.multinomial(probabilities, BATCH, replacement=True, generator=generator)
        advantage = risk_sensitive(worth[chosen], BATCH, risk)
        gradient = torch.zeros(ARMS).index_add_(0, chosen, advantage) - probabilities * advantage.sum()
        logits = logits + LEARNING_RATE * gradient / BATCH
    return float((torch.softmax(logits, 0) * worth).sum())


def measure(seed: int) -> Pairs:
    return {"reward": (final_reward(seed, 8.0), final_reward(seed, 0.0))}


CASE = Case(
    method="rs-grpo",
    parent="dr-grpo",
    claim="with b = 8 the policy leaves the local peak it starts on for the better one; with b = 0 it stays",
    quantities=(Quantity("reward", "mean reward after 10,000 updates", "higher", 0.02, "a twentieth of the distance between the peaks"),),
    problem="100-arm bandit",
    measure=measure,
    launch={"base": "dr-grpo", "config": {"risk": 2.0}},
)
