"""A bandit whose answers without a search earn 0.2 on average and those with two 0.8: does the policy still learn which of the former are better?"""

import torch

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.methods.group.stratified_grpo import Config, blend_advantages

KINDS, ARMS, GROUP, GROUPS, STEPS, LEARNING_RATE, NOISE = 2, 10, 8, 8, 400, 1.0, 0.1


def measure(seed: int) -> Pairs:
    return paired(trained(seed, Config().alpha), trained(seed, 0.0))


def trained(seed: int, alpha: float) -> dict[str, float]:
    """Expected reward of the trained policy given that it does not search, and whatever it does."""
    generator = torch.Generator().manual_seed(seed)
    worth = torch.tensor([0.2, 0.8])[:, None] + torch.linspace(-0.15, 0.15, ARMS)  # (2, ARMS)
    flat, logits = worth.flatten(), torch.zeros(KINDS * ARMS)
    for _ in range(STEPS):
        probabilities = torch.softmax(logits, 0)
        chosen = torch.multinomial(probabilities, GROUP * GROUPS, replacement=True, generator=generator)
        rewards = flat[chosen] + NOISE * torch.randn(len(chosen), generator=generator)
        advantage = blend_advantages(rewards, chosen // ARMS, GROUP, alpha, 1e-8, 0)
        gradient = torch.zeros(KINDS * ARMS).index_add_(0, chosen, advantage) - probabilities * advantage.sum()
        logits = logits + LEARNING_RATE * gradient / len(chosen)
    without = float((torch.softmax(logits[:ARMS], 0) * worth[0]).sum())
    return {"without search": without, "reward": float((torch.softmax(logits, 0) * flat).sum())}


CASE = Case(
    method="stratified-grpo",
    parent="grpo",
    claim="answers without a search go on learning from one another, although the group's mean pushes all of them down",
    quantities=(
        Quantity(
            "without search",
            "expected reward among answers without a search (at best 0.35, at first 0.2)",
            "higher",
            0.01,
            "a thirtieth of the range of answers without a search",
        ),
        Quantity("reward", "expected reward over all answers", "higher", 0.01, "a hundredth of the highest reward"),
    ),
    problem="bandit of 2 x 10 noisy arms, 400 updates",
    measure=measure,
    launch={"base": "grpo"},
)
